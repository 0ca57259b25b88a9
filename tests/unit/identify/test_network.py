"""A network replaces the motors only if they are such that parameters cannot express them."""

import hashlib
import json
from dataclasses import replace

import numpy as np
import pytest
import torch
from robot_rl_assets import registry
from robot_rl_envs.actuation import ActuatorNet, NetFile, load_actuator_net

from robot_rl.cli.main import main
from robot_rl.errors import UserError
from robot_rl.identify import network
from robot_rl.identify.excite import excite
from robot_rl.identify.identify import IdentifyCfg, identify
from robot_rl.identify.network import NetworkProblem, read_network
from robot_rl.identify.plant_model import PlantModel
from robot_rl.identify.result import Identified
from robot_rl.identify.robot_log import make_log
from robot_rl.identify.simulated_log import NOISE, digest
from robot_rl.identify.windows import Problem, Window

FINE_S, LATE_S, NOISE_NM = 0.0005, 0.005, 0.02


def servo(error, speed):
    """kp of 30 and kd of 1, as commanded, 5 ms late."""
    return 30.0 * error[:, 1] - speed[:, 0]


def weak(error, speed):
    """The same with coils that saturate at 4 N m, far below the robot's limit of 25 N m."""
    return 4.0 * np.tanh(servo(error, speed) / 4.0)


@pytest.fixture(scope="module")
def record(arm):
    """record(law, seed): the arrays of 4 s of an arm with these motors, at 200 Hz, with their torques."""

    def make(law, seed):
        plant, commands, torques = PlantModel(arm, FINE_S), excite(arm, 4.0, 200.0, share=1.0 - 0.2 * seed), []

        def torque(error, speed):
            torques.append(law(error, speed))
            return torques[-1]

        still = {"q": commands["target"], "dq": np.zeros_like(commands["target"])}
        log = make_log("simulated", "", {**commands, **still}, arm)
        rows = np.arange(1, len(log.time))
        states = NetworkProblem(plant, [Window(log, 0, rows)], torque, (0.0, LATE_S)).predict(
            [plant.parameters.nominal]
        )
        last = np.array(torques)[np.round(log.time[1:] / FINE_S).astype(int) - 1]
        rng, arrays = np.random.default_rng(seed), dict(commands)
        for key, values, noise in zip(
            ("q", "dq", "torque"), (*np.split(states[0], 2, axis=1), last), (*NOISE, NOISE_NM), strict=True
        ):
            first = still.get(key, np.zeros_like(last))[:1]
            arrays[key] = np.concatenate([first, values]) + noise * rng.standard_normal(
                (len(log.time), values.shape[1])
            )
        return arrays

    return make


@pytest.fixture(scope="module")
def weak_arrays(record):
    return [record(weak, seed) for seed in (0, 1)]


@pytest.fixture(scope="module")
def weak_logs(arm, weak_arrays):
    return [make_log(f"{n}.npz", digest(arrays), arrays, arm) for n, arrays in enumerate(weak_arrays)]


@pytest.fixture(autouse=True)
def short(monkeypatch):
    """Train for a third of the time."""
    monkeypatch.setattr(network, "STEPS", 700)


@pytest.fixture
def folder(arm, weak_arrays, tmp_path, monkeypatch):
    """A folder with two logs of the weak arm, which is found by its name."""
    monkeypatch.chdir(tmp_path)
    get = registry.get_robot
    monkeypatch.setattr(registry, "get_robot", lambda name: arm if name == "arm" else get(name))
    for name, arrays in zip(("a.npz", "b.npz"), weak_arrays, strict=True):
        np.savez(name, **arrays)
    return tmp_path


def test_a_network_of_motors_that_saturate_is_written_and_compared_again(folder, arm, capsys):
    words = ["identify", "a.npz", "held=b.npz", "robot=arm", "fit=gain,damping,friction,armature,delay"]
    assert main(words) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[-3:] == ["a.identified.json", "a.identified.html", "a.identified.net.safetensors"]
    assert any(line.startswith("network of the logged torques ") and line.endswith("% better") for line in lines)
    file = folder / "a.identified.net.safetensors"
    first = Identified.read("a.identified.json").net
    assert first is not None
    assert first.used
    assert first.trained
    assert first.ratio < 0.5
    assert first.dynamics == "model"
    assert (first.file, first.sha256) == (file.name, hashlib.sha256(file.read_bytes()).hexdigest())
    ActuatorNet(file=str(file)).check(arm, first.timestep, "position")
    assert load_actuator_net(file).robot == "arm"
    assert '"network"' in (folder / "a.identified.html").read_text()

    assert main([*words, f"net={file.name}", "out=again.json"]) == 0
    again = Identified.read("again.json").net
    assert again is not None
    assert not again.trained
    assert replace(again, trained=True) == first
    assert not (folder / "again.net.safetensors").exists()


def test_a_network_of_plain_motors_is_not_written(folder, record, capsys):
    for name, seed in (("a.npz", 0), ("b.npz", 1)):
        np.savez(name, **record(servo, seed))
    assert main(["identify", "a.npz", "held=b.npz", "robot=arm"]) == 0
    (line,) = [line for line in capsys.readouterr().out.splitlines() if line.startswith("network of the")]
    assert line.endswith("% worse, and is written only if it is 20 % better")
    entry = json.loads((folder / "a.identified.json").read_text())["net"]
    assert entry["ratio"] > 1.0
    assert (entry["file"], entry["sha256"], entry["used"]) == ("", "", False)
    assert not [*folder.glob("*.safetensors")]


def test_without_torques_nothing_is_trained(arm, log, other):
    found = [identify([log], other, arm, IdentifyCfg(fit=("gain", "friction"), net=net)) for net in ("auto", "no")]
    assert found[0].network is None
    assert found[0].result == found[1].result
    assert found[0].result.net is None


def test_the_network_has_the_same_bits_at_any_number_of_threads(arm, weak_logs):
    before = torch.get_num_threads()
    try:
        results = []
        for threads in (1, 2):
            torch.set_num_threads(threads)
            cfg = IdentifyCfg(fit=("gain", "friction"), threads=threads)
            results.append(identify(weak_logs[:1], weak_logs[1], arm, cfg).result)
            assert torch.get_num_threads() == threads
    finally:
        torch.set_num_threads(before)
    assert results[0].net is not None
    assert len(results[0].net.sha256) == 64
    assert results[0] == results[1]


def test_a_law_of_plain_servos_predicts_as_the_servos_do(arm, log):
    """With kp times the error as the law, and kd as damping."""
    model = PlantModel(arm, 0.0025)
    plain = Problem(model, [Window(log, 100, np.arange(101, 160))])
    damped = model.parameters.nominal.copy()
    damped[model.parameters.indices("damping")] += 1.0  # In place of kd, which the law is without.
    law = NetworkProblem(model, plain.windows, lambda error, _: 30.0 * error[:, 0], (0.0,))
    found, expected = law.predict([damped])[0], plain.predict([model.parameters.nominal])[0]
    assert np.abs(found - expected)[:, :3].max() < 2e-3


@pytest.mark.parametrize(
    ("changes", "timesteps", "line"),
    [
        ({"robot": "leg"}, (), "is of the robot leg"),
        ({}, (0.005, 0.01), r"its lags of 0, 7, 14 ms are not whole timesteps of a task of arm \(5, 10 ms\)"),
        ({}, (0.005, 0.0035), None),
        ({"robot": ""}, (), None),
    ],
)
def test_a_network_of_another_robot_or_timestep_is_refused(arm, tmp_path, changes, timesteps, line):
    path = tmp_path / "net.safetensors"
    layers = [(np.ones((out, size), np.float32), np.zeros(out, np.float32)) for out, size in ((4, 6), (1, 4))]
    net = NetFile(layers=layers, lags_s=(0.0, 0.007, 0.014), robot="arm")
    path.write_bytes(replace(net, **changes).to_bytes())
    if line is None:
        assert read_network(str(path), arm, timesteps).sizes == [6, 4, 1]
        return
    with pytest.raises(UserError, match=line):
        read_network(str(path), arm, timesteps)


@pytest.mark.parametrize(
    ("content", "words", "line"),
    [
        (None, "", "net=net.safetensors: no such file"),
        (b"not a network", "", "is not a readable safetensors file"),
        (b"", "base=free", "net=net.safetensors: is for a robot that hangs"),
    ],
)
def test_a_file_that_is_no_network_is_one_line(folder, capsys, content, words, line):
    if content is not None:
        (folder / "net.safetensors").write_bytes(content)
    before = sorted(folder.iterdir())
    assert main(["identify", "a.npz", "held=b.npz", "robot=arm", "net=net.safetensors", *words.split()]) == 2
    (error,) = capsys.readouterr().err.splitlines()
    assert line in error
    assert sorted(folder.iterdir()) == before
