"""The humanoid on rough ground: what it adds to the flat task, and that its height counts from the ground below."""

import pytest
import torch
from robot_rl_envs.make import make_env
from robot_rl_envs.task import Reward
from robot_rl_tasks.g1_rough import ground
from robot_rl_tasks.registry import get_task


def test_its_height_counts_from_the_ground_below():
    task = get_task("g1_rough")
    task.only_positive_rewards, task.events = False, {}
    task.rewards = {"height": Reward(ground.clearance, weight=1.0, target=0.73)}
    env = make_env(task, num_envs=2, engine="mujoco", num_threads=1)
    env.engine.step = lambda substeps: None
    env.reset()
    env.state.terrain_heights.fill_(0.25)
    high = env.state.qpos[:, 2].clone()
    _, reward, _, _ = env.step(torch.zeros(2, env.num_actions))
    assert (reward / env.step_dt).tolist() == pytest.approx(((high - 0.25 - 0.73) ** 2).tolist(), rel=1e-3)
    env.close()


def test_it_is_the_flat_task_with_a_scan_and_gentler_ground_than_the_go2_s():
    rough, flat, go2 = (get_task(name) for name in ("g1_rough", "g1_flat", "go2_rough"))
    seen = rough.vectors["actor"].terms
    assert list(seen) == [*flat.vectors["actor"].terms, "scan"]
    assert list(rough.rewards) == list(flat.rewards)
    assert rough.terrain is not None
    assert go2.terrain is not None
    for name in ("slope", "step_height"):
        mine, theirs = (
            max(getattr(tile, name)[1] for tile in terrain.tiles.values() if hasattr(tile, name))
            for terrain in (rough.terrain, go2.terrain)
        )
        assert mine <= theirs / 2
