"""The environment's benchmark: the stages of a step, and the rival in a process of its own."""

import json

import numpy as np
import pytest
import torch
from robot_rl_envs.make import make_env as make
from robot_rl_tasks.registry import get_task

from robot_rl.cli import bench as cli
from robot_rl.performance.env import bench_env, make_bare, random_actions
from robot_rl.performance.profile import MIRRORS, PHYSICS, REST, _watched


@pytest.fixture
def make_env():
    return lambda: make(get_task("go2_flat"), num_envs=8, device="cpu", seed=1)


def test_the_stages_add_up(make_env):
    result = bench_env(make_env, repeats=2)
    assert json.loads(json.dumps(result)) == result
    stages = result["profile"]["stages"]
    assert {PHYSICS, MIRRORS, REST, "act kernel", "results handed out"} <= set(stages)
    assert sum(stage["share"] for stage in stages.values()) == pytest.approx(1.0, abs=0.001)
    assert all(stage["share"] >= 0.0 for stage in stages.values())
    assert "profile" not in bench_env(make_env, repeats=2, profile=False)


@pytest.mark.parametrize("engine", ["mujoco", pytest.param("mujoco_warp", marks=pytest.mark.long)])
def test_the_bare_engine_does_the_same_physics(engine):
    """A cart-pole's model is the same in every world: from the same state the same actions lead to the same state."""
    env = make(get_task("cartpole"), num_envs=3, device="cpu", engine=engine, seed=1)
    bare = make_bare(env)
    actions = random_actions(env, torch.Generator().manual_seed(0))[:4]
    for _ in range(2):
        run = bare.make_block(env.engine.get_state(), actions)
        run()
        for action in actions:
            _, _, done, _ = env.step(action)
            assert not done.any()
        state = bare.batch.state if engine == "mujoco" else bare.engine.get_state()
        np.testing.assert_allclose(state, env.engine.get_state(), atol=1e-5)
    assert bare.who in [row["who"] for row in bench_env(lambda: env, repeats=2, profile=False)["rows"]]


def test_the_stopwatch_leaves_nothing_behind(make_env):
    env = make_env()
    owners = (env, env.engine, env.engine.batch, env.only._act, env.only._after_and_observe, env.only.torch_terms)
    before = [dict(vars(owner)) for owner in owners]
    with _watched(env):
        assert any(vars(owner) != known for owner, known in zip(owners, before, strict=True))
    assert [set(vars(owner)) for owner in owners] == [set(known) for known in before]
    env.close()


def test_the_table_shows_stages_and_settings(capsys):
    result = {
        "name": "env x",
        "machine": {"cpu": "a CPU", "cores": 2},
        "rows": [{"who": "ours", "value": 2000.0, "spread": 1.0, "unit": "steps/s"}],
        "profile": {"step_ms": 2.0, "stages": {"physics": {"share": 0.75, "ms": 1.5}}},
        "notes": {"device": "cpu", "settings": {"ours": {"cone": "pyramidal"}, "theirs": {"timestep_s": 0.005}}},
    }
    cli.show(result)
    shown = capsys.readouterr().out
    for word in ("2,000", "75.0%", "1.500", "device: cpu", "pyramidal", "0.005"):
        assert word in shown
