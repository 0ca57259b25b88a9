"""Fields of MuJoCo's own in terms' hands: what the CPU engine gives is what MjData holds after mj_step by hand."""

from pathlib import Path
from typing import Any

import mujoco
import numpy as np
import pytest
import warp as wp
from robot_rl_assets.robot import Joint, Robot
from robot_rl_envs.engine import DIRTY_STATE
from robot_rl_envs.engines import make_engine
from robot_rl_envs.engines.post_constraint import plugin_fields
from robot_rl_envs.engines.rows import RowLister
from robot_rl_envs.entity.mujoco_fields import FIELDS, FORCES, used_mujoco_fields
from robot_rl_envs.entity.scene import Scene
from robot_rl_envs.mdp import rewards
from robot_rl_envs.task import Actions, Observation, ObservationGroup, Reward, Sim, Task
from robot_rl_envs.terms import observation, reward
from robot_rl_envs.terrain import rough_terrains

N = 3
SIM = Sim(timestep=0.005, decimation=4, integrator="rk4", iterations=100, ls_iterations=50)
MODEL = """
<mujoco>
  <worldbody>
    <geom type="plane" size="5 5 0.1"/>
    <body name="ball" pos="0 0 0.3">
      <freejoint/>
      <geom type="sphere" size="0.1"/>
      <body name="arm" pos="0.2 0 0">
        <joint name="elbow" axis="0 1 0"/>
        <geom type="capsule" fromto="0 0 0 0.3 0 0" size="0.05"/>
      </body>
    </body>
  </worldbody>
  <actuator><motor joint="elbow" gear="3" ctrllimited="true" ctrlrange="-1 1"/></actuator>
</mujoco>
"""


@pytest.fixture
def ball(tmp_path):
    """A ball with an arm that brings its own ground and motor."""
    path = tmp_path / "ball.xml"
    path.write_text(MODEL)
    joints = (Joint(name="elbow", default_pos=0.0, effort_limit=3.0, velocity_limit=10.0),)
    return Robot(name="ball", model=path, joints=joints, base_body="ball", base_height=0.3, complete=True)


@pytest.fixture
def engine(ball):
    scene = Scene(ball, SIM, Actions(kind="direct"), mujoco_fields=tuple(FIELDS))
    return make_engine("mujoco", scene, num_envs=N, device="cpu", num_threads=2)


def test_after_a_step_they_are_those_of_mj_step_with_contact_forces(engine):
    mujoco_fields = {name: engine.watch(name).numpy() for name in FIELDS}
    plain = engine.model
    datas = [mujoco.MjData(plain) for _ in range(N)]
    rng, largest = np.random.default_rng(0), 0.0
    for _ in range(60):
        ctrl = rng.uniform(-2, 2, (N, 1)).astype(np.float32)
        engine.data.ctrl.numpy()[...] = ctrl
        engine.step(4)
        for i, data in enumerate(datas):
            data.ctrl[:] = ctrl[i]
            mujoco.mj_step(plain, data, 4)
            mujoco.mj_rnePostConstraint(plain, data)
            for name, values in mujoco_fields.items():
                np.testing.assert_array_equal(values[i].ravel(), getattr(data, name).ravel(), err_msg=name)
            largest = max(largest, np.abs(data.cfrc_ext).max())
    assert plain.nplugin == 0
    assert largest > 1.0, "contacts were to be part of it"


def test_after_a_reset_they_are_the_new_state_s_and_forces_are_zero(engine):
    mujoco_fields = {name: engine.watch(name).numpy() for name in FIELDS}
    for _ in range(40):
        engine.step(4)
    before = {name: values.copy() for name, values in mujoco_fields.items()}
    data = mujoco.MjData(engine.model)
    qpos, qvel = data.qpos.astype(np.float32), np.arange(7, dtype=np.float32)
    qpos[:3] = 1, 2, 3
    engine.data.qpos.numpy()[1], engine.data.qvel.numpy()[1] = qpos, qvel
    dirty = wp.array(np.array([0, DIRTY_STATE, 0]), dtype=wp.int32, device="cpu")
    assert engine.look(dirty)
    data.qpos[:], data.qvel[:] = qpos, qvel
    mujoco.mj_forward(engine.model, data)
    for name, values in mujoco_fields.items():
        want = np.zeros_like(values[1].ravel()) if name in FORCES else getattr(data, name).ravel()
        np.testing.assert_array_equal(values[1].ravel(), want, err_msg=name)
        np.testing.assert_array_equal(values[[0, 2]], before[name][[0, 2]], err_msg=name)
    assert before["cfrc_ext"][1].any()
    dirty.zero_()
    assert not engine.look(dirty)


def test_rows_are_listed():
    dirty = wp.array([0, 2, 1, 3, 6], dtype=wp.int32, device="cpu")
    lister = RowLister(dirty, 2)
    assert lister.list().tolist() == [1, 3, 4]
    dirty.zero_()
    assert lister.list().tolist() == []


def test_the_plugin_s_struct_is_checked_against_the_header():
    header = Path(mujoco.__file__).parent / "include" / "mujoco" / "mjplugin.h"
    fields = plugin_fields(header.read_text())
    assert fields[:2] == ["name", "nattribute"]
    assert "advance" in fields
    assert plugin_fields(header.read_text().replace("int needstage;", "int stage; int more;")) != fields
    assert plugin_fields("nothing of the kind") == []


def refused(call, *words):
    with pytest.raises(ValueError, match=".") as caught:
        call()
    line = str(caught.value)
    assert "\n" not in line
    assert all(word in line for word in words), line


def test_what_does_not_go_with_a_model_that_is_a_whole_scene(ball):
    from robot_rl_assets.registry import get_robot
    from robot_rl_envs.actuation.actuators import DcMotor

    refused(lambda: Scene(ball, SIM, Actions(kind="effort")), "actions.kind='effort'", "'ball'", "direct")
    refused(lambda: Scene(get_robot("cartpole"), SIM, Actions(kind="direct")), "actions.kind='direct'", "effort")
    motor = Actions(kind="direct", actuator=DcMotor())
    refused(lambda: Scene(ball, SIM, motor), "actions.actuator=DcMotor", "'ball'")
    task = Task(
        name="t",
        robot=ball,
        sim=SIM,
        actions=Actions(kind="direct"),
        terrain=rough_terrains(),
        rewards={"alive": Reward(rewards.alive, weight=1.0)},
        observations={"actor": ObservationGroup(terms={"one": Observation(_height)})},
    )
    from robot_rl_envs.entity.scene import make_scene

    refused(lambda: make_scene(task), "terrain", "'ball'")
    task.observations["actor"].terms["one"] = Observation(_unknown)
    refused(lambda: used_mujoco_fields(task), "one", "data='xfrc'", "cfrc_ext")


@observation(size=1, data=("xpos",))
@wp.func
def _height(s: Any, i: int, j: int) -> float:
    """Height of body 1."""
    return float(s.engine_xpos[i, 1, 2])


@observation(size=1, data=("xfrc",))
@wp.func
def _unknown(s: Any, i: int, j: int) -> float:
    """No field of that name."""
    return 0.0


@wp.func
def _before(s: Any, i: int):
    """Takes no parameter."""


def test_what_runs_before_the_physics_takes_the_term_s_parameters():
    @wp.func
    def scaled(s: Any, i: int, factor: float) -> float:
        """Some reward."""
        return factor

    refused(lambda: reward(before=_before)(scaled), "scaled", "before", "s, i, factor")
