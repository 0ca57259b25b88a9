"""Quarantine on mujoco_warp: the same faults, the same isolation, and full buffers that name the size to set."""

import json

import mujoco_warp as mjw
import numpy as np
import pytest
import torch
from robot_rl_envs import engine as base
from robot_rl_envs.make import make_env
from robot_rl_envs.mdp import observations, rewards
from robot_rl_envs.task import Observation, ObservationGroup, Reward, Sim, TorchTerm

pytestmark = pytest.mark.long  # mujoco_warp compiles for most of a minute where its kernels are not cached

N, BAD, STEP, STEPS = 4, 2, 5, 50
OTHERS = [0, 1, 3]


def broken_by_command(state):
    """1 / vx of the command: not finite at vx = 0."""
    return 1.0 / state.command[:, 0]


def root_of_command(state):
    """The square root of vy of the command."""
    return state.command[:, 1:2].sqrt()


@pytest.fixture(scope="module")
def task():
    """make(**sim): a Go2; torch terms, so that every task shares the kernels that compile for long."""
    from robot_rl_assets.registry import get_robot
    from robot_rl_envs.task import Task

    def make(**sim):
        terms = {
            "joint_pos": Observation(observations.joint_pos_rel, noise=0.01),
            "root": TorchTerm(kind="observation", fn=root_of_command),
        }
        return Task(
            name="stand",
            robot=get_robot("unitree_go2"),
            sim=Sim(timestep=0.005, decimation=1, **sim),
            observations={"actor": ObservationGroup(terms=terms)},
            rewards={
                "alive": Reward(rewards.alive, weight=1.0),
                "share": TorchTerm(kind="reward", fn=broken_by_command),
            },
        )

    return make


def trajectory(task, poison=None, steps=STEPS, directory=None):
    env = make_env(task, num_envs=N, engine="mujoco_warp", seed=3)
    env.quarantine_dir = directory
    env.state.qpos[:, 2] = 1.5  # in the air: nobody touches anything
    env.set_command((1.0, 1.0, 0.0))
    rows = []
    for step in range(steps):
        actions = 0.5 * torch.randn(N, 12, generator=torch.Generator().manual_seed(step))
        if step == STEP and poison is not None:
            poison(env, actions)
        obs, value, dones, extras = env.step(actions)
        if step == STEP:
            env.set_command((1.0, 1.0, 0.0))
        kept = [*obs.values(), value, dones, extras["valid"], env.state.qpos, env.state.qvel]
        rows.append([tensor.clone() for tensor in kept])
    return env, [torch.stack(column) for column in zip(*rows, strict=True)]


def spoil_state(env, actions):
    env.state.qvel[BAD, 7] = torch.nan


def spoil_action(env, actions):
    actions[BAD, 5] = torch.nan


def spoil_reward(env, actions):
    env.set_command((0.0, 1.0, 0.0), torch.tensor([BAD]))


def spoil_observation(env, actions):
    env.set_command((1.0, -1.0, 0.0), torch.tensor([BAD]))


def crouch(env, actions):
    """Put one robot into the floor: dozens of contacts at once."""
    env.state.qpos[BAD, 2] = 0.0
    env.state.qpos[BAD, 7:] = -0.5


@pytest.fixture(scope="module")
def clean(task):
    return trajectory(task())[1]


@pytest.mark.parametrize(
    ("poison", "reason"),
    [(spoil_state, "state"), (spoil_action, "action"), (spoil_reward, "reward"), (spoil_observation, "observation")],
)
def test_the_others_bits_are_unaffected(task, clean, poison, reason):
    env, spoilt = trajectory(task(), poison)
    assert (~spoilt[3]).nonzero().tolist() == [[STEP, BAD]]
    for one, other in zip(clean, spoilt, strict=True):
        assert torch.equal(one[:, OTHERS], other[:, OTHERS])
        assert torch.isfinite(other).all()
    metrics = env.pop_metrics()
    assert metrics["quarantined"] == metrics[f"quarantined/{reason}"] == 1


def test_too_few_rows_cost_the_world_that_needs_more(task, tmp_path):
    """The others, in the air, need none; the line names the setting and what would do, and that does."""
    _, clean = trajectory(task(njmax=16), steps=12)
    assert clean[3].all()
    env, spoilt = trajectory(task(njmax=16), crouch, steps=12, directory=tmp_path)
    assert not spoilt[3][STEP, BAD]
    assert spoilt[3][:, OTHERS].all()
    for one, other in zip(clean, spoilt, strict=True):
        assert torch.equal(one[:, OTHERS], other[:, OTHERS])
    assert env.pop_metrics()["quarantined/overflow"] >= 1
    path = min(tmp_path.glob("overflow-world2-*.npz"))
    (why,) = json.loads(str(np.load(path)["about"]))["why"]
    assert "sim.njmax=16 is too small: needs about " in why
    need = int(why.split("needs about ")[1].split()[0])
    assert 16 < need < 400
    _, enough = trajectory(task(njmax=4 * need), crouch, steps=12)
    assert enough[3].all()


def test_a_contact_buffer_is_everybodys(task, tmp_path):
    """It is unknown which worlds lost contacts: all are quarantined, and the line reports what a world needs."""
    env, spoilt = trajectory(task(nconmax=1), crouch, steps=STEP + 1, directory=tmp_path)
    assert not spoilt[3][STEP].any()
    assert spoilt[3][:STEP].all()
    assert env.pop_metrics()["quarantined/overflow"] == N
    why = json.loads(str(np.load(min(tmp_path.iterdir()))["about"]))["why"][0]
    assert "sim.nconmax=1 is too small: needs about " in why


def test_the_bits_are_mujoco_warps():
    kind = mjw.OverflowType
    pairs = {
        base.OVERFLOW_CONSTRAINTS: kind.NEFC,
        base.OVERFLOW_NONZEROS: kind.NJMAX_NNZ,
        base.OVERFLOW_PAIRS: kind.BROADPHASE,
        base.OVERFLOW_CONTACTS: kind.NARROWPHASE,
        base.OVERFLOW_CCD: kind.CCD,
        base.OVERFLOW_HFIELD: kind.HFIELD,
        base.OVERFLOW_MATCHES: kind.CONTACT_MATCH,
        base.OVERFLOW_DOFS: kind.NVMAX,
    }
    assert all(mine == int(theirs) for mine, theirs in pairs.items())
    counted = sum(int(bit) for bit in pairs.values())
    assert counted == base.OVERFLOW_BITS
    assert not counted & int(kind.ITERATIONS | kind.LS_ITERATIONS | kind.EPA_HORIZON)
