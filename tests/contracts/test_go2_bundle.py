"""The Go2 bundle that comes with the project walks cleanly: it tracks, lifts its feet, stays level, stands still."""

import pytest
import torch
from robot_rl_envs.make import make_env
from robot_rl_tasks.registry import get_task

from robot_rl.evaluation import evaluation_task
from robot_rl.evaluation.policies import ExportedPolicy
from robot_rl.runs.policies import find_bundle

WORLDS, SETTLE, STEPS = 16, 50, 100


@pytest.fixture(scope="module")
def walk():
    """Drive the bundle with one command in all worlds; return what was recorded after a second, time first."""
    task = evaluation_task(get_task("go2_flat"))
    del task.events["push"]
    env = make_env(task, num_envs=WORLDS, seed=11)
    controller = ExportedPolicy(find_bundle("go2_flat"), env)

    def drive(*command):
        env.set_command(command)
        obs = env.reset()
        controller.reset(torch.ones(WORLDS, dtype=torch.bool))
        record = {name: [] for name in ("base_lin_vel_b", "base_ang_vel_b", "foot_contact", "foot_height_w", "action")}
        falls = 0
        for step in range(SETTLE + STEPS):
            obs, _, done, _ = env.step(controller(obs))
            falls += int(done.sum())
            if step >= SETTLE:
                for name, values in record.items():
                    values.append(getattr(env.state, name).clone())
        assert falls == 0
        return {name: torch.stack(values) for name, values in record.items()}

    yield drive
    env.close()


@pytest.mark.parametrize("command", [(1.0, 0.0, 0.0), (-0.6, 0.0, 0.0), (0.0, 0.4, 0.0), (0.5, 0.0, 0.7)])
def test_it_follows_a_command(walk, command):
    record = walk(*command)
    mean = torch.cat([record["base_lin_vel_b"].mean((0, 1))[:2], record["base_ang_vel_b"].mean((0, 1))[2:]])
    assert torch.all((mean - torch.tensor(command)).abs() < 0.2), mean


def test_its_gait_is_clean(walk):
    record = walk(0.8, 0.0, 0.0)
    share = record["foot_contact"].mean((0, 1))
    assert torch.all((share > 0.3) & (share < 0.7)), "each foot stands and swings"
    assert torch.allclose(share[[0, 2]], share[[1, 3]], atol=0.08), "left as right"
    assert torch.all(record["foot_height_w"].amax(0).mean(0) > 0.05), "feet lift by 5 cm, none drags"
    together = (record["foot_contact"][..., 0] == record["foot_contact"][..., 3]).float().mean()
    assert together > 0.8, "diagonal feet go together: a trot"
    touchdowns = (record["foot_contact"].diff(dim=0) > 0).float().sum(0).mean() / (STEPS * 0.02)
    assert 1.5 < touchdowns < 3.5, "about two steps a second, no patter"


def test_it_stands_still(walk):
    record = walk(0.0, 0.0, 0.0)
    assert record["foot_contact"][-50:].mean() > 0.98, "all feet stay down"
    assert record["base_lin_vel_b"][-50:].norm(dim=-1).mean() < 0.05
    assert record["action"][-50:].diff(dim=0).abs().mean() < 0.01, "no jitter"
