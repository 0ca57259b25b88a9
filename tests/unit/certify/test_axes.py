"""The properties of a certificate: each world's model has the values that were asked, by hand-computed numbers."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch
from robot_rl_envs.entity.scene import make_scene
from robot_rl_tasks.registry import get_task

from robot_rl.certify.axes import Fields, find_axes, kept_events, with_delay
from robot_rl.certify.models import with_model
from robot_rl.certify.worlds import Worlds
from robot_rl.errors import UserError
from robot_rl.runs.settings import default_tree, resolve


@pytest.fixture(scope="module")
def go2():
    """A Go2 on flat ground: its task, its scene and its properties by name."""
    task = get_task("go2_flat")
    scene = make_scene(task)
    return task, scene, {axis.name: axis for axis in find_axes(task, scene)}


@pytest.fixture
def written(go2):
    """written(name, values): a property's fields in worlds with these values, and the model's own."""
    _, scene, axes = go2

    def write(name, values):
        own = {field: np.array(getattr(scene.model, field)) for field in axes[name].fields}
        own = {field: value.reshape(len(value), -1).astype(np.float32) for field, value in own.items()}
        live = {field: torch.tensor(value).repeat(len(values), 1, 1) for field, value in own.items()}
        axes[name].write(Fields(SimpleNamespace(scene=scene), live), torch.tensor(values))
        return {field: (value.numpy(), own[field]) for field, value in live.items()}

    return write


def test_a_payload_is_added_to_the_base_and_scales_its_inertia(go2, written):
    model = go2[1].model
    base = model.body("base_link").id
    found = written("payload", [0.0, 3.0])
    mass, own = found["body_mass"]
    assert mass[:, base, 0] - own[base, 0] == pytest.approx([0.0, 3.0], abs=1e-5)
    inertia, before = found["body_inertia"]
    assert inertia[1, base] == pytest.approx(before[base] * (1 + 3.0 / own[base, 0]), rel=1e-5)
    others = np.arange(model.nbody) != base
    assert np.array_equal(mass[1, others], own[others])


def test_factors_of_joints_and_motors(go2, written):
    dofs = go2[1].joint_dof
    armature, own = written("armature", [1.0, 3.0])["dof_armature"]
    assert armature[1, dofs] == pytest.approx(3 * own[dofs])
    assert np.array_equal(armature[0], own)
    found = written("damping", [2.0])
    damping, own = found["dof_damping"]
    assert damping[0, dofs] == pytest.approx(2 * own[dofs])
    bias, own = found["actuator_biasprm"]
    assert bias[0, :, 2] == pytest.approx(2 * own[:, 2])
    assert bias[0, :, :2] == pytest.approx(own[:, :2])
    found = written("motor_strength", [0.5])
    gain, own = found["actuator_gainprm"]
    assert gain[0, :, 0] == pytest.approx(0.5 * own[:, 0])
    bias, own = found["actuator_biasprm"]
    assert bias[0, :, 1:3] == pytest.approx(0.5 * own[:, 1:3])


def test_friction_is_that_of_the_feet_and_the_center_of_mass_moves_along_x(go2, written):
    friction, own = written("floor_friction", [0.3, 0.0])["geom_friction"]
    feet = go2[1].foot_geoms
    assert friction[:, feet, 0] == pytest.approx(np.array([[0.3] * 4, [0.01] * 4]))
    assert np.array_equal(friction[:, feet, 1:], np.stack([own[feet, 1:]] * 2))
    place, own = written("center_of_mass", [0.05])["body_ipos"]
    base = go2[1].model.body("base_link").id
    assert place[0, base] - own[base] == pytest.approx([0.05, 0.0, 0.0], abs=1e-6)


def test_the_box_of_a_property_is_the_range_of_the_task(go2):
    _, _, axes = go2
    boxes = {name: axis.box for name, axis in axes.items() if axis.box is not None}
    assert boxes == {
        "motor_strength": (0.9, 1.1),
        "payload": (-1.0, 1.0),
        "center_of_mass": (-0.02, 0.02),
        "push": (0.0, 0.5),
        "floor_friction": (0.4, 1.2),
    }
    assert list(kept_events(get_task("go2_flat"))) == ["base", "joints"]


def test_values_go_outwards_from_the_nominal_one(go2):
    """A factor of 4 at half of the way to 16 is 2^2; a delay is a whole number of physics steps."""
    task, _, axes = go2
    strength, delay = axes["motor_strength"], axes["delay"]
    assert strength.at("high", 0.0) == 1.0
    assert strength.at("low", 0.5) == pytest.approx(0.5)
    assert delay.at("high", 0.21) / task.sim.timestep == pytest.approx(3, abs=1e-4)
    assert "low" not in delay.sides


def test_the_engine_has_each_worlds_own_values_and_delays_its_commands():
    """A cart that is driven by a constant effort: force, mass of the rotor and delay show in its first steps."""
    cfg = resolve(default_tree("cartpole", "cpu"))
    worlds = Worlds(cfg, lambda obs: torch.ones(len(obs), 1), 4, 0.4, seed=1)
    try:
        worlds.run([{}, {"motor_strength": 0.5}, {"damping": 5.0}, {"delay": 0.05}])
        batch = worlds.env.engine.batch
        gain, damping = (np.asarray(batch.expand(name)) for name in ("actuator_gainprm", "dof_damping"))
        assert gain[:, 0, 0] / gain[0, 0, 0] == pytest.approx([1.0, 0.5, 1.0, 1.0])
        assert damping[:, 0].reshape(4) / damping[0, 0] == pytest.approx([1.0, 1.0, 5.0, 1.0])
        assert worlds.env.state.delay_steps.tolist() == [0, 0, 0, 5]
        again = worlds.run([{}])
        assert np.asarray(batch.expand("dof_damping"))[:, 0].std() == 0.0
        assert len(again.success) == 1
    finally:
        worlds.close()


def test_another_model_of_the_robot_keeps_its_control(tmp_path):
    """Its own file with another mass, nameless feet and a mesh that is missing."""
    import mujoco

    task = get_task("go2_flat")
    spec = mujoco.MjSpec.from_file(str(task.robot.model))
    spec.geom("FL").name = "sole"
    spec.site("FL_foot").name = "other"
    spec.body("base_link").mass *= 2
    spec.body("base_link").name = "trunk"
    mesh = '<asset><mesh name="looks" file="looks.obj"/></asset><worldbody><geom type="mesh" mesh="looks"/>'
    path = tmp_path / "theirs.xml"
    path.write_text(spec.to_xml().replace("<worldbody>", mesh, 1))
    found = with_model(task, path, tmp_path / "out")
    model, ours = make_scene(found).model, make_scene(task).model
    assert model.body("base_link").mass == pytest.approx(2 * ours.body("base_link").mass)
    assert [joint.kp for joint in found.robot.joints] == [joint.kp for joint in task.robot.joints]
    assert found.sim.step_dt == pytest.approx(task.sim.step_dt)
    assert found.sim.timestep == pytest.approx(0.002)


@pytest.mark.parametrize(
    ("file", "line"),
    [("cartpole", "is without the joint FL_hip_joint"), ("nothing", "does not exist"), ("text", "cannot be")],
)
def test_a_model_of_another_robot_is_refused(tmp_path, file, line):
    path = tmp_path / "model.xml"
    if file == "cartpole":
        path = get_task("cartpole").robot.model
    elif file == "text":
        path.write_text("no XML")
    with pytest.raises(UserError, match=line):
        with_model(get_task("go2_flat"), path, tmp_path)


def test_a_task_with_a_delay_keeps_its_own_range_as_the_box():
    task = get_task("go2_flat")
    task.actions.actuator.delay_s = (0.0, 0.02)
    axes = {axis.name: axis for axis in find_axes(task, make_scene(with_delay(task)))}
    assert axes["delay"].box == (0.0, 0.02)
    assert axes["delay"].nominal == pytest.approx(0.01, abs=0.51 * task.sim.timestep)
    assert axes["delay"].sides.keys() == {"low", "high"}
