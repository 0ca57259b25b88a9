"""The group "motion": its content by name, and that it exists only on request."""

import numpy as np
import pytest
import torch
from robot_rl_envs.make import make_env
from robot_rl_envs.motion import MOTION, component_names, with_motion
from robot_rl_envs.task import Observation, ObservationGroup
from robot_rl_tasks.registry import get_task

JOINTS = [f"{leg}_{part}_joint" for leg in ("FL", "FR", "RL", "RR") for part in ("hip", "thigh", "calf")]


@pytest.fixture(scope="module")
def env():
    env = make_env(with_motion(get_task("go2_flat")), num_envs=2, device="cpu", num_threads=1)
    yield env
    env.close()


def test_its_components(env):
    names = env.components(MOTION)
    base = [f"{term}.{axis}" for term in ("base_lin_vel", "base_ang_vel") for axis in "xyz"]
    gravity = [f"gravity.{axis}" for axis in "xyz"]
    joints = [f"{term}.{joint}" for term in ("joint_pos", "joint_vel") for joint in JOINTS]
    assert names == [*joints, *base, "height", *gravity]
    obs = env.get_observations()[MOTION]
    assert obs.shape == (2, len(names))
    at = dict(zip(names, obs[0].tolist(), strict=True))
    state = env.state
    assert at["height"] == pytest.approx(float(state.qpos[0, 2]))
    assert at["joint_vel.FR_calf_joint"] == pytest.approx(float(state.qvel[0, 6 + JOINTS.index("FR_calf_joint")]))
    assert np.linalg.norm([at[name] for name in gravity]) == pytest.approx(1.0, abs=1e-5)


def test_no_noise_and_a_mirror(env):
    seen = [env.step(torch.zeros(2, 12))[0][MOTION].clone() for _ in range(2)][-1]
    names = env.components(MOTION)
    torch.testing.assert_close(seen[:, 12:24], env.state.joint_vel)
    perm, sign = env.mirror[MOTION]
    k = names.index("base_lin_vel.y")
    assert (int(perm[k]), float(sign[k])) == (k, -1.0)
    assert names[int(perm[names.index("joint_pos.FL_calf_joint")])] == "joint_pos.FR_calf_joint"


def test_the_motion_group_is_added_only_on_request():
    task = get_task("go2_flat")
    assert MOTION not in task.observations
    own = with_motion(task)
    assert MOTION not in task.observations
    assert list(own.observations) == ["actor", "critic", MOTION]
    assert with_motion(own) is own


def test_other_names(env):
    """Scales and places in a history are part of a name; actions, feet and numbers have names of their own."""
    names = env.components("actor")
    assert names[0] == "gyro.x*0.25"
    assert names[-1] == "last_action.RR_calf_joint"
    assert "clock.1" in names
    assert env.components("critic")[-1].startswith("foot_height.")
    task = get_task("cartpole")
    some = next(iter(task.observations["actor"].terms.values()))
    twice = Observation(some.fn, history=2, scale=0.5, **some.params)
    task.observations = {**task.observations, "past": ObservationGroup(terms={"value": twice})}
    other = make_env(task, num_envs=1, device="cpu", num_threads=1)
    size = some.info.size if isinstance(some.info.size, int) else 1
    assert len(other.components("past")) == 2 * size
    assert all(name.endswith(("[0]*0.5", "[1]*0.5")) for name in other.components("past"))
    other.close()
    with pytest.raises(ValueError, match="group='camera': is without component names; actor, critic, motion have them"):
        component_names(env.operands().layout, "camera", env.scene)
