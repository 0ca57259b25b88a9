"""What cannot work is refused when the environment is built, in one line that names what would."""

import itertools
import json
import re

import numpy as np
import pytest
from robot_rl_assets.registry import get_robot
from robot_rl_envs.actuation.actuator_net import METADATA_KEY, load_actuator_net, save_actuator_net
from robot_rl_envs.actuation.actuators import ActuatorNet, DcMotor, ExplicitPd, PositionPd
from robot_rl_envs.entity.scene import make_scene
from robot_rl_envs.mdp import actuation, events
from robot_rl_envs.task import Actions, Event, Observation, ObservationGroup, Sim, Task
from safetensors.numpy import save_file

from tests.unit.actuation.conftest import by_speed

DT = 0.005


def build(actuator, *, kind="position", robot="unitree_go2", timestep=DT, drawn=None, wheels=()):
    from robot_rl_envs.mdp import observations

    task = Task(
        name="refused",
        robot=by_speed(get_robot(robot), *wheels),
        sim=Sim(timestep=timestep, decimation=4),
        actions=Actions(kind=kind, actuator=actuator),
        observations={"actor": ObservationGroup(terms={"joint_pos": Observation(observations.joint_pos_rel)})},
        rewards={},
        events=drawn or {},
    )
    return make_scene(task)


def layers(*sizes):
    return [
        (np.ones((rows, columns), np.float32), np.ones(rows, np.float32)) for columns, rows in itertools.pairwise(sizes)
    ]


def net_file(path, weights, **metadata_fields):
    tensors = {}
    for k, (weight, bias) in enumerate(weights):
        tensors |= {f"layers.{k}.weight": weight, f"layers.{k}.bias": bias}
    fields = {"activation": "softsign", "lags_s": [0.0], "error_scale": 1, "velocity_scale": 1, "output_scale": 1}
    save_file(tensors, path, metadata={METADATA_KEY: json.dumps(fields | metadata_fields)})
    return str(path)


@pytest.mark.parametrize(
    ("make", "line"),
    [
        (lambda: PositionPd(delay_s=(0.02, 0.01)), r"delay_s=\(0.02, 0.01\): must be \(lo, hi\) with 0 <= lo <= hi"),
        (lambda: ExplicitPd(delay_s=(-0.1, 0.01)), "delay_s"),
        (lambda: ExplicitPd(delay_s=(0.0, float("nan"))), "delay_s"),
        (lambda: PositionPd(delay_history=0), r"delay_history=0: must be in \[1, 256\] substeps"),
        (lambda: DcMotor(voltage=0.0), "voltage=0.0: must be a finite number > 0"),
        (lambda: DcMotor(saturation_effort=-1.0), "saturation_effort=-1.0"),
        (lambda: ExplicitPd(saturation_effort=-1.0), "saturation_effort=-1.0: must be a finite number >= 0"),
    ],
)
def test_figures_out_of_range(make, line):
    with pytest.raises(ValueError, match=line):
        make()


@pytest.mark.parametrize("actuator", [PositionPd, DcMotor, ExplicitPd])
def test_a_delay_longer_than_its_history(actuator):
    line = "0.05 s are 10 substeps of 0.005 s, but actuator.delay_history=8 keeps only 0.04 s; set delay_history to 10"
    with pytest.raises(ValueError, match=re.escape(line)):
        build(actuator(delay_s=(0.0, 0.05), delay_history=8))
    build(actuator(delay_s=(0.0, 0.05), delay_history=10))


def test_kinds_that_do_not_fit():
    with pytest.raises(ValueError, match="ExplicitPd turns joint targets into torques; use actions.kind=position"):
        build(ExplicitPd(), kind="effort")
    for actuator in (PositionPd(), DcMotor(), ExplicitPd()):
        with pytest.raises(ValueError, match=r"kp=0 and kd=0; give it gains .* or use actions.kind=effort"):
            build(actuator, robot="cartpole")


def test_a_speed_as_a_target_where_there_is_none(tmp_path):
    joint = "FL_calf_joint"
    file = net_file(tmp_path / "net.safetensors", layers(2, 1))
    with pytest.raises(ValueError, match=f"ActuatorNet: joint '{joint}' of 'unitree_go2' has kp=0 and a kd, so its"):
        build(ActuatorNet(file=file), wheels=(joint,))


def test_events_of_another_actuator():
    factors = {f"{name}_{end}": 1.0 for name in ("kp", "kd", "strength") for end in ("lo", "hi")}
    explicit = {"gains": Event(actuation.explicit_gains, **factors)}
    motor = {"gains": Event(actuation.dc_motor_gains, **factors)}
    native = {"gains": Event(events.motor_strength, lo=0.9, hi=1.1)}
    for actuator, drawn, right in (
        (PositionPd(), explicit, "motor_strength"),
        (DcMotor(), explicit, "dc_motor_gains"),
        (DcMotor(), native, "dc_motor_gains"),
        (ExplicitPd(), motor, "explicit_gains"),
        (PositionPd(), motor, "motor_strength"),
    ):
        with pytest.raises(ValueError, match=rf"events\.gains: \w+ does not fit actions.actuator=\w+; use {right} "):
            build(actuator, drawn=drawn)
    build(ExplicitPd(), drawn=native)


def test_a_missing_network():
    with pytest.raises(ValueError, match=r"actions\.actuator\.file='no\.safetensors': no such file in .*unitree_go2"):
        build(ActuatorNet(file="no.safetensors"))
    with pytest.raises(ValueError, match=r"file='/nowhere/no\.safetensors': no such file; docs/actuators"):
        build(ActuatorNet(file="/nowhere/no.safetensors"))
    with pytest.raises(ValueError, match="file='': no such file"):
        build(ActuatorNet())


@pytest.mark.parametrize(
    ("weights", "metadata_fields", "line"),
    [
        (
            layers(3, 8, 1),
            {},
            r"layers\.0\.weight has shape \(8, 3\), wants \(out, 2\): an error and a velocity at each of",
        ),
        (layers(2, 8, 1), {"lags_s": [0.0, 0.01]}, r"layers\.0\.weight has shape \(8, 2\), wants \(out, 4\)"),
        (layers(2, 8, 1)[:1] + layers(7, 1), {}, r"layers\.1\.weight has shape \(1, 7\), wants \(1, 8\): the width of"),
        (layers(2, 8, 12), {}, r"layers\.1\.weight has shape \(12, 8\), wants \(1, 8\).*one torque"),
        (layers(2, 300, 1), {}, r"layers\.0 is 300 wide, wants 1 to 256"),
        (layers(2, 1), {}, "1 layers, wants 2 to 5"),
        (layers(2, 8, 1), {"activation": "gelu"}, "activation='gelu', wants one of elu, relu, softsign, tanh"),
        (layers(2, 8, 1), {"lags_s": []}, r"lags_s=\(\), wants finite times"),
        (layers(2, 8, 1), {"lags_s": None}, "its metadata key 'actuator_net' wants a JSON object"),
        (layers(2, 8, 1), {"output_scale": float("inf")}, "output_scale=inf, wants a finite number"),
        (
            [(np.full((8, 2), np.nan, np.float32), np.ones(8, np.float32)), *layers(8, 1)],
            {},
            r"layers\.0\.weight holds",
        ),
        (
            [(np.ones((8, 2), np.float32), np.ones(7, np.float32)), *layers(8, 1)],
            {},
            r"layers\.0\.bias has shape \(7,\)",
        ),
    ],
)
def test_a_network_of_the_wrong_shape(weights, metadata_fields, line, tmp_path):
    path = net_file(tmp_path / "net.safetensors", weights, **metadata_fields)
    with pytest.raises(ValueError, match=line) as error:
        build(ActuatorNet(file=path))
    assert "net.safetensors" in str(error.value)
    assert "\n" not in str(error.value)


def test_a_file_that_is_no_network(tmp_path):
    path = tmp_path / "net.safetensors"
    path.write_bytes(b"nonsense")
    with pytest.raises(ValueError, match="is not a readable safetensors file"):
        build(ActuatorNet(file=str(path)))
    save_file({"layers.0.weight": np.ones((8, 2), np.float32)}, path)
    with pytest.raises(ValueError, match="its metadata key 'actuator_net' wants a JSON object"):
        build(ActuatorNet(file=str(path)))
    extra = [*layers(2, 8, 1)]
    net_file(path, extra)
    weights = {"layers.0.weight": np.ones((8, 2), np.float32), "layers.1.weight": np.ones((1, 8), np.float32)}
    metadata_fields = {"activation": "relu", "lags_s": [0.0], "error_scale": 1, "velocity_scale": 1, "output_scale": 1}
    save_file(weights, path, metadata={METADATA_KEY: json.dumps(metadata_fields)})
    with pytest.raises(ValueError, match=r"has layers\.0\.weight but no layers\.0\.bias, wants both"):
        build(ActuatorNet(file=str(path)))
    weights |= {"layers.0.bias": np.ones(8, np.float32), "layers.1.bias": np.ones(1, np.float32)}
    save_file(weights | {"mean": np.ones(2, np.float32)}, path, metadata={METADATA_KEY: json.dumps(metadata_fields)})
    with pytest.raises(ValueError, match=r"holds mean, wants layers\.0\.weight"):
        build(ActuatorNet(file=str(path)))


def test_lags_between_substeps(tmp_path):
    path = net_file(tmp_path / "net.safetensors", layers(6, 8, 1), lags_s=[0.0, 0.01, 0.02])
    build(ActuatorNet(file=path))
    line = "its lag of 0.01 s is 1.5 substeps of sim.timestep=0.00666667 s; wants a whole number of at most 64"
    with pytest.raises(ValueError, match=re.escape(line)):
        build(ActuatorNet(file=path), timestep=0.02 / 3)


def test_saving_what_cannot_be_loaded_writes_nothing(tmp_path):
    path = tmp_path / "net.safetensors"
    with pytest.raises(ValueError, match=r"layers\.0\.weight has shape \(8, 3\)"):
        save_actuator_net(path, layers(3, 8, 1))
    assert list(tmp_path.iterdir()) == []


def test_a_file_comes_back_as_it_was_saved(tmp_path, random_net):
    path, saved = random_net("elu")
    loaded = load_actuator_net(path)
    assert loaded.sizes == saved.sizes == [6, 16, 8, 1]
    assert (loaded.activation, loaded.lags_s) == ("elu", (0.0, DT, 2 * DT))
    assert (loaded.error_scale, loaded.velocity_scale, loaded.output_scale) == (1.5, 0.1, 3.0)
    for (weight, bias), (other_weight, other_bias) in zip(saved.layers, loaded.layers, strict=True):
        np.testing.assert_array_equal(weight, other_weight)
        np.testing.assert_array_equal(bias, other_bias)


def test_a_file_next_to_the_robot_or_in_the_working_directory(tmp_path, monkeypatch, random_net):
    path, _ = random_net()
    (tmp_path / "mine.safetensors").write_bytes(path.read_bytes())
    monkeypatch.chdir(tmp_path)
    build(ActuatorNet(file="mine.safetensors"))


def test_the_command_line_sets_an_actuators_figures():
    from robot_rl_tasks.registry import get_task

    from robot_rl.errors import UserError
    from robot_rl.settings.tree import apply_tree, task_tree

    task = get_task("go2_flat")
    assert task_tree(task)["actions"]["actuator"] == {
        "delay_s": [0.0, 0.0],
        "delay_history": 16,
        "delay_quantiles_s": [],
        "jitter_quantiles_s": [],
    }
    changed = apply_tree(task, {"actions": {"actuator": {"delay_s": [0.0, 0.02]}}})
    assert changed.actions.actuator == PositionPd(delay_s=(0.0, 0.02))
    with pytest.raises(UserError, match="must be .lo, hi. with 0 <= lo <= hi"):
        apply_tree(task, {"actions": {"actuator": {"delay_s": [0.2, 0.02]}}})
