"""Identification against known truths, and on logs of real robots: errors, intervals, held-out errors, time.

    python benchmarks/identify.py out=benchmarks/identify.json
    python benchmarks/identify.py parts=go2,xl330 logs=<folder> out=benchmarks/identify.json

"air": simulated Go2s in the air with other joints, noise of 0.2 mrad and 0.05 rad/s, 8 s; the plant at the timestep of
the fit. "step": the plant at 1 ms, the fit at 2 ms. Both count how many 95 % intervals contain the truth. "go2": a real
Go2, hanging: go2_1 fits, go2_5 (the same robot) and go2_0 (another) test, 1.5 s from a measured state; the rival is a
network that go2_1 trains on torques by inverse dynamics, since none were logged. "xl330": a real servo with a
pendulum, kp of 100 and 400 fits, 200 and 800 tests, 1 s. `logs` has unitree_chirps and servo_pendulum. "walk":
simulated Go2s that walk 8 s by the policy go2_flat with other motors, a delay and a payload, by itself and with the
result of its hanging log as the prior.
A part that is not measured keeps its figures in the file.
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from harness import measure_parts, run_bench
from robot_rl_assets.registry import get_robot
from robot_rl_assets.robot import Joint, Robot

from robot_rl.cli.options import option
from robot_rl.errors import UserError
from robot_rl.identify.excite import excite
from robot_rl.identify.identify import Identification, IdentifyCfg, identify
from robot_rl.identify.network import NetworkProblem, train
from robot_rl.identify.parameters import DEFAULT_FIT, FIELDS, Parameters
from robot_rl.identify.plant_model import PlantModel
from robot_rl.identify.robot_log import RobotLog, make_log, read_log
from robot_rl.identify.simulated_log import digest, simulated_log
from robot_rl.identify.simulated_walk import Walk, walking_log
from robot_rl.identify.start_values import start_values
from robot_rl.identify.windows import Problem, cut_windows
from robot_rl.runs.policies import find_bundle

STALL, FREE_SPEED, RATED = 0.52, 10.8, 5.0
"""The data sheet of the XL330: torque [N m] and speed [rad/s] at its voltage [V]."""
DUTY = 4096 / (2 * np.pi) / 256 / 885
"""Of the full voltage, for 1 rad of error and a unit of the gain's register, by the logs' own PWM."""
SMOOTH = 6
"""Rows on both sides over which states are averaged before they are differentiated."""
PENDULUM = """<mujoco><compiler angle="radian"/><worldbody><body name="arm">
<joint name="joint" type="hinge" axis="0 1 0" damping="0" armature="0.001" frictionloss="0.02"/>
<inertial pos="0 0 -{length}" mass="{mass}" diaginertia="1e-6 1e-6 1e-6"/></body></worldbody></mujoco>"""


@dataclass(kw_only=True, slots=True)
class Options:
    """Options of this script."""

    parts: str = option("air,step", "which parts, of air, step, go2, xl330, walk")
    plants: int = option(10, "simulated robots", least=1, most=100)
    logs: str = option("", "the folder of real logs")
    out: str = option("", "the file; by default nothing is written")


def hidden(parameters: Parameters, rng: np.random.Generator) -> np.ndarray:
    """Return the parameters of a robot that differs from its model in every joint."""
    count, truth = len(parameters.joints), parameters.nominal.copy()
    truth[parameters.indices("armature")] *= rng.uniform(0.5, 2.5, count)
    truth[parameters.indices("damping")] += rng.uniform(-0.05, 0.4, count)
    truth[parameters.indices("friction")] = rng.uniform(0.05, 0.6, count)
    truth[parameters.indices("gain")] = rng.uniform(0.75, 1.2, count)
    truth[parameters.indices("offset")] = rng.uniform(-0.03, 0.03, count)
    truth[parameters.delay] = rng.uniform(0.002, 0.012)
    return truth


def record(robot: Robot, truth: np.ndarray, seed: int, *, seconds: float, timestep: float) -> RobotLog:
    """Return the log of a simulated robot that plays an excitation."""
    arrays = simulated_log(PlantModel(robot, timestep), truth, excite(robot, seconds), seed)
    return make_log("simulated", digest(arrays), arrays, robot)


def simulated(plants: int, timestep: float) -> dict[str, Any]:
    """Fit some hidden robots; return the RMS errors by parameter, hits of the intervals, held-out errors, seconds."""
    robot, rows = get_robot("unitree_go2"), []
    for seed in range(plants):
        truth = hidden(PlantModel(robot, timestep).parameters, np.random.default_rng(seed))
        log, other = (
            record(robot, truth, 100 * seed + n, seconds=seconds, timestep=timestep)
            for n, seconds in enumerate((8.0, 6.0))
        )
        model, begin = PlantModel(robot, 0.002), time.process_time()
        start_values(model, [log], model.parameters.free(DEFAULT_FIT))
        regression, begin = time.process_time() - begin, time.process_time()
        found = identify([log], other, robot, IdentifyCfg())
        seconds = time.process_time() - begin
        rows.append(_against(found, truth) | {"seconds": seconds, "regression_s": regression})
        print(f"plant {seed}: {seconds:.1f} s, {100 * np.mean(rows[-1]['hits']):.0f} % of the intervals", flush=True)
    names = [name for name in rows[0]["rms"] if name]
    return _summary(rows) | {
        "plants": plants,
        "worst_rms_error": {name: max(row["rms"][name] for row in rows) for name in names},
        "coverage_by_parameter": {name: float(np.mean([row["by_name"][name] for row in rows])) for name in names},
        "regression_s": float(np.median([row["regression_s"] for row in rows])),
    }


def walking(plants: int) -> dict[str, Any]:
    """Fit some hidden robots that walk, without and with a prior; return RMS errors, hits, held-out errors, seconds."""
    robot, found = get_robot("unitree_go2"), {"without_prior": [], "with_prior": []}
    for seed in range(plants):
        plant, rng = PlantModel(robot, 0.002, base="free"), np.random.default_rng(seed)
        truth = plant.parameters.nominal.copy()
        for name, low, high in (("gain", 0.8, 1.1), ("friction", 0.05, 0.6)):
            truth[plant.parameters.indices(name)] = rng.uniform(low, high, len(robot.joints))
        truth[plant.parameters.delay : plant.parameters.delay + 2] = rng.uniform([0.004, -1.0], [0.012, 2.0])
        logs = []
        for n, seconds in enumerate((8.0, 4.0)):
            arrays = walking_log(Walk(plant, truth, find_bundle("go2_flat"), 10 * seed + n), seconds)
            logs.append(make_log(f"walk{n}", digest(arrays), arrays, robot))
        hanging = record(robot, truth[: plant.parameters.delay + 1], seed, seconds=8.0, timestep=0.002)
        prior = identify([hanging], None, robot, IdentifyCfg()).result
        for name, before in (("without_prior", None), ("with_prior", prior)):
            begin = time.process_time()
            fit = identify(logs[:1], logs[1], robot, IdentifyCfg(base="free", prior=before))
            row: dict[str, Any] = _against(fit, truth) | {"seconds": time.process_time() - begin}
            row["rms"]["mass"] = float(abs(fit.fit.theta - truth)[plant.parameters.delay + 1])
            found[name].append(row)
            print(f"plant {seed}, {name}: {row['seconds']:.1f} s, {row['rms']}", flush=True)
    return {"plants": plants} | {name: _summary(rows) for name, rows in found.items()}


def _summary(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Return RMS errors, coverage, held-out errors and seconds of some fits."""
    names = [name for name in rows[0]["rms"] if name]
    return {
        "rms_error": {name: float(np.sqrt(np.mean([row["rms"][name] ** 2 for row in rows]))) for name in names},
        "coverage": float(np.mean([np.mean(row["hits"]) for row in rows])),
        "held_out": {end: float(np.median([row["errors"][end]["q"] for row in rows])) for end in ("before", "after")},
        "seconds": float(np.median([row["seconds"] for row in rows])),
    }


def _against(found: Identification, truth: np.ndarray) -> dict[str, Any]:
    """Compare a fit with the truth."""
    parameters, free = found.model.parameters, found.fit.free
    off = (found.fit.theta - truth)[free]
    hits = np.abs(off) <= found.spread.half
    places = {name: np.isin(free, parameters.indices(name)) for name in (*FIELDS, "delay")}
    used = {name: at for name, at in places.items() if at.any()}
    return {
        "rms": {name: float(np.sqrt(np.mean(off[at] ** 2))) for name, at in used.items()},
        "hits": hits.tolist(),
        "by_name": {name: float(hits[at].mean()) for name, at in used.items()},
        "errors": found.result.errors["held"],
    }


def real_go2(folder: Path) -> dict[str, Any]:
    """Fit one run of a real Go2, and predict another of it, and one of another Go2."""
    robot = get_robot("unitree_go2")
    logs = {name: read_log(folder / "unitree_chirps" / f"{name}.npz", robot) for name in ("go2_1", "go2_5", "go2_0")}
    begin = time.process_time()
    found = identify([logs["go2_1"]], logs["go2_5"], robot, IdentifyCfg(window_s=1.5), print)
    seconds = time.process_time() - begin
    rows: dict[str, Any] = {"seconds": seconds, "log_s": logs["go2_1"].seconds}
    for name in ("go2_5", "go2_0"):
        test = Problem(found.model, cut_windows([logs[name]], 1.5))
        before, after = test.errors(found.model.parameters.nominal), test.errors(found.fit.theta)
        rows[name] = {"windows": len(test.windows), "before": before, "after": after}
    rows["network"] = rival_network(found.model, logs)
    calf = [row for joint, row in found.result.joints.items() if "calf" in joint]
    rows["calf"] = {name: [row[name].value for row in calf] for name in ("armature", "friction", "damping", "gain")}
    return rows


def rival_network(model: PlantModel, logs: Mapping[str, RobotLog]) -> dict[str, Any]:
    """Train a network on go2_1, and predict the two others; its torques contain the friction."""
    log, parameters, begin = logs["go2_1"], model.parameters, time.process_time()
    theta, armature = parameters.nominal.copy(), parameters.nominal[parameters.indices("armature")]
    for name in ("damping", "friction"):
        theta[parameters.indices(name)] = 0.0
    window, measured = np.hanning(2 * SMOOTH + 3)[1:-1], ~log.repeated

    def smooth(column: np.ndarray) -> np.ndarray:
        even = np.interp(log.time, log.time[measured], column[measured])
        return np.convolve(np.pad(even, SMOOTH, "edge"), window / window.sum(), "valid")

    q, dq = (np.stack([smooth(column) for column in values.T], 1) for values in (log.joint_pos, log.joint_vel))
    ddq = np.gradient(dq, log.time, axis=0)
    torque = model.link_torques(q, dq, ddq) + armature * ddq
    target = np.concatenate([log.target[1:], log.target[-1:]])  # A row's own command predicts better for this torque.
    net = train([replace(log, joint_vel=dq, torque=torque, target=target)], model.timestep, model.robot)
    found: dict[str, Any] = {"seconds": time.process_time() - begin}
    for name in ("go2_5", "go2_0"):
        found[name] = NetworkProblem(model, cut_windows([logs[name]], 1.5), net.torque, net.lags_s).errors(theta)
    return found


def pendulum(folder: Path, path: Path) -> tuple[Robot, dict[int, list[RobotLog]]]:
    """Return the servo with its pendulum as a robot, and its logs by the register of its gain."""
    logs: dict[int, list[RobotLog]] = {}
    robot = None
    for file in sorted((folder / "servo_pendulum").glob("xl330_*.npz")):
        with np.load(file, allow_pickle=False) as data:
            row = {key: np.asarray(data[key]) for key in data.files}
        if robot is None:
            model = path / "pendulum.xml"
            model.write_text(PENDULUM.format(mass=float(row["mass"]), length=float(row["length"])))
            joint = Joint(
                name="joint", default_pos=0.0, effort_limit=STALL, velocity_limit=FREE_SPEED, kp=1.0, kd=0.048
            )
            robot = Robot(name="xl330_pendulum", model=model, joints=(joint,))
        on = row["torque_enable"].astype(float)[:, None]
        arrays = {
            "time": row["timestamp"],
            "q": row["position"][:, None],
            "dq": row["speed"][:, None],
            "target": row["goal_position"][:, None],
            "kp": STALL * DUTY * float(row["kp"]) * on,
            "kd": STALL / FREE_SPEED * on,
            "voltage": row["input_volts"],
        }
        logs.setdefault(int(row["kp"]), []).append(make_log(file.stem, file.stem, arrays, robot))
    if robot is None:
        raise UserError("logs", str(folder), "is without servo_pendulum/xl330_*.npz")
    return robot, logs


def real_xl330(folder: Path) -> dict[str, Any]:
    """Fit two gains of a real servo, and predict the two others, with and without friction that grows with the load."""
    rows: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as path:
        robot, logs = pendulum(folder, Path(path))
        train, tests = logs[100] + logs[400], logs[200] + logs[800]
        for name, more in (("plain", ()), ("load_friction", ("load_friction",))):
            begin = time.process_time()
            cfg = IdentifyCfg(fit=(*DEFAULT_FIT, *more), window_s=1.0, rated_voltage=RATED, timestep=0.002)
            found = identify(train, tests[0], robot, cfg, print)
            test = Problem(found.model, cut_windows(tests, 1.0, 0.5), rated_voltage=RATED)
            before, after = test.errors(found.model.parameters.nominal), test.errors(found.fit.theta)
            joint = {key: [row.value, row.lo, row.hi] for key, row in found.result.joints["joint"].items()}
            seconds = time.process_time() - begin
            rows[name] = {"before": before, "after": after, "seconds": seconds, "joint": joint}
            rows[name]["torque_constant"] = float(STALL / RATED * found.fit.theta[0])
            print(name, rows[name], flush=True)
    return rows


def measure(options: Options, _: dict[str, Any]) -> dict[str, Any]:
    """Measure the parts; the others keep their figures."""
    folder = Path(options.logs)
    known: dict[str, Callable[[], dict[str, Any]]] = {
        "air": lambda: simulated(options.plants, 0.002),
        "step": lambda: simulated(options.plants, 0.001),
        "go2": lambda: real_go2(folder),
        "xl330": lambda: real_xl330(folder),
        "walk": lambda: walking(min(options.plants, 3)),
    }
    for name in options.parts.split(","):
        if name in ("go2", "xl330") and not folder.joinpath("unitree_chirps").is_dir():
            raise UserError("logs", options.logs, "name the folder with unitree_chirps and servo_pendulum")
    return measure_parts("identify", options.parts, options.out, known)


def show(result: dict[str, Any]) -> None:
    """Print the figures."""
    print(json.dumps(result["parts"], indent=1))


if __name__ == "__main__":
    try:
        run_bench(sys.argv[1:], Options, measure, show)  # type: ignore[arg-type]
    except UserError as error:
        sys.exit(str(error))
