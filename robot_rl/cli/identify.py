"""Identify a robot's joints from its logs: gains, rotor inertia, damping, friction and the delay.

usage: robot-rl identify LOG [LOG ...] [key=value ...]
       robot-rl identify excite robot=<name> [out=<file>.npz] [key=value ...]

{Options}

LOG is an *.mcap of robot-rl-infer --log, or an *.npz with the arrays time [s], q, dq, target [rad, rad/s, rad], kp, kd
and joints (names). The robot hangs or is bolted, its feet in the air, or it walks (base=free, with quat and gyro). A
log is held out, and the fit is compared with the model on it: that of held=, else the last one, of a single log its
last third. The result is LOG.identified.json, and a page of the same name with measured, nominal and fitted curves of
the held-out log; LOG.identified.net.safetensors is a network that predicts better (net=auto).

options of excite:
{Excite}

excite writes targets to play on the robot: another sweep on each joint, within its limits. A bundle is played as a
policy is: hang the robot, run robot-rl-infer --bundle DIRECTORY --log DIRECTORY, stand, then start the policy; it
repeats until you damp the robot.
"""

import contextlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from robot_rl.cli.options import MAX_SEED, option, read_all, split_bare
from robot_rl.errors import UserError, as_user_error
from robot_rl.runs.outputs import EXCITATION, IDENTIFIED, NETWORK, PAGE, check_output


@dataclass(kw_only=True, slots=True)
class Options:
    """Options of robot-rl identify."""

    robot: str = option("", "the robot; of an *.mcap by default the log's")
    held: str = option("", "a log that is only predicted, to compare with the model")
    fit: str = option(
        "",
        "gain,armature,damping,friction,offset,delay by default, of a robot that walks mass instead of offset; "
        "load_friction grows with the load; com_x, com_y, com_z, floor of one that walks",
    )
    omit: str = option("", "joints that keep their nominal values, such as FL_hip_joint,FR_hip_joint")
    base: str = option("fixed", "fixed: the robot hangs or is bolted; free: it walks, with quat and gyro in its log")
    prior: str = option("", "a *.identified.json of the robot, such as of its hanging log, around which the fit stays")
    window: float = option(
        0.0,
        "length of the stretches that are predicted from a measured state [s]; 0: 0.5, of a robot that walks 0.04",
        least=0.0,
        most=5.0,
    )
    timestep: float = option(0.0, "of the simulation [s]; 0: of the log, at most 0.0025", least=0.0, most=0.02)
    voltage: float = option(
        0.0,
        "supply at which kp and torque limits hold [V]; then a log's own counts; 0: it does not",
        least=0.0,
        most=1000.0,
    )
    task: str = option("", "also fit at this task's timestep, for its training; by default of all the robot's tasks")
    net: str = option(
        "auto",
        "auto: if the logs have torques, a network is trained, and written if it predicts the held-out log 20 % better "
        "than the parameters; no: never; or a network's file, which is only compared",
    )
    threads: int = option(1, "of the simulation; the result has the same bits with any number", least=1, most=256)
    out: str = option("", "the result, <log>.identified.json by default")


@dataclass(kw_only=True, slots=True)
class Excite:
    """Options of robot-rl identify excite."""

    robot: str = option("", "the robot")
    out: str = option("excitation.npz", "an *.npz of the targets, or a directory: a bundle that robot-rl-infer plays")
    log: str = option("", "rehearse the bundle on the simulated, hanging robot, and write the binary's log: *.mcap")
    motors: int = option(
        0, "its robot has other motors than its model, drawn by this seed; 0: the model's", least=0, most=MAX_SEED
    )
    seconds: float = option(20.0, "its length [s]", least=4.0, most=600.0)
    rate: float = option(500.0, "targets a second [Hz]", least=20.0, most=2000.0)
    share: float = option(1.0, "of the usual amplitude", least=0.01, most=1.0)


def run(arguments: Sequence[str]) -> int:
    """Fit, print the table, write the file; or write an excitation."""
    names, settings = split_bare(arguments)
    if names[:1] == ["excite"]:
        return write_excitation([*names[1:], *settings])
    options = read_all(Options, settings)
    if not names:
        raise UserError("log: is missing; write robot-rl identify <log> robot=<name>")
    out = options.out or str(Path(names[0]).with_suffix(".identified.json"))
    path = check_output("out", out, IDENTIFIED)
    page = check_output("out", str(path.with_suffix(".html")), PAGE)
    network = check_output("out", str(path.with_suffix(".net.safetensors")), NETWORK) if options.net == "auto" else None
    from robot_rl_assets.registry import get_robot
    from robot_rl_envs.engines.mujoco_warnings import ignore, take_warnings

    from robot_rl.files import write_atomic
    from robot_rl.identify.identify import IdentifyCfg, identify
    from robot_rl.identify.page import render_page
    from robot_rl.identify.result import Identified, error_lines, table
    from robot_rl.identify.robot_log import read_log, robot_of

    with as_user_error():
        robot = get_robot(options.robot or robot_of(names[0]))
    cfg = IdentifyCfg(
        fit=_words(options.fit),
        omit=_words(options.omit),
        base=options.base,
        prior=Identified.read(options.prior) if options.prior else None,
        window_s=options.window,
        timestep=options.timestep,
        rated_voltage=options.voltage,
        net=options.net,
        threads=options.threads,
    )
    cfg = replace(cfg, task_timesteps=_timesteps(robot.name, options.task))
    logs = [read_log(name, robot) for name in names]
    held = read_log(options.held, robot) if options.held else None
    for log in (*logs, *([held] if held else [])):
        print(f"{log.name}: {log.seconds:.1f} s, {len(log.time)} rows")
        for note in log.notes:
            print(f"  {note}")
    with take_warnings(ignore):  # A trial step can make rollouts diverge; it is not taken.
        found = identify(logs, held, robot, cfg, lambda line: print(line, flush=True))
    result = found.result
    print("\n".join([*table(result), *result.notes, *error_lines(result.errors)]))
    written = [path, page]
    if found.network is not None:
        print(found.network.entry.line())
        if network is not None and found.network.entry.used:
            write_atomic(network, found.network.net.to_bytes())
            found.result = result = replace(result, net=replace(found.network.entry, file=network.name))
            written.append(network)
    result.write(path)
    write_atomic(page, render_page(found))
    print("\n".join(map(str, written)))
    return 0


def write_excitation(arguments: Sequence[str]) -> int:
    """Write the targets of an excitation."""
    options = read_all(Excite, arguments)
    if not options.robot:
        raise UserError("robot: is missing; write robot-rl identify excite robot=<name>")
    is_file = options.out.endswith(".npz")
    path = check_output("out", options.out, EXCITATION) if is_file else Path(options.out)
    if options.log and (is_file or not options.log.endswith(".mcap")):
        raise UserError("log", options.log, "must be *.mcap, and out= a directory for the bundle that is rehearsed")
    if options.motors and not options.log:
        raise UserError("motors", options.motors, "is of a rehearsal", "name its log=")
    if options.log and Path(options.log).exists():
        raise UserError("log", options.log, "exists already", "name a new file")
    from robot_rl_assets.registry import get_robot

    from robot_rl.identify.excitation_bundle import PERIOD_S, rehearse, write_excitation_bundle
    from robot_rl.identify.excite import excite, save
    from robot_rl.sim2sim.adapt.plants import other_motors

    with as_user_error():
        robot = get_robot(options.robot)
    arrays = excite(robot, options.seconds, options.rate if is_file else 1.0 / PERIOD_S, options.share)
    print(f"{options.seconds:g} s for the {len(robot.joints)} joints of {robot.name}")
    if is_file:
        save(path, arrays)
    else:
        write_excitation_bundle(path, robot, arrays)
    print(path)
    if options.log:
        real = other_motors(robot, options.motors) if options.motors else robot
        rehearse(path, real, options.seconds, Path(options.log))
        print(options.log)
    return 0


def _timesteps(robot: str, task: str) -> tuple[float, ...]:
    """Return the timesteps of a task, or of all tasks of a robot that can be built here [s]."""
    from robot_rl_tasks.registry import get_task, list_tasks

    if task:
        with as_user_error():
            one = get_task(task)
        if one.robot.name != robot:
            raise UserError("task", task, f"its robot is {one.robot.name}, the log's is {robot}")
        return (one.sim.timestep,)
    found = []
    for name in list_tasks():
        with contextlib.suppress(Exception):  # Of another package, which may be broken; it is not the one to fit for.
            one = get_task(name)
            found += [one.sim.timestep] if one.robot.name == robot else []
    return tuple(dict.fromkeys(found))


def _words(text: str) -> tuple[str, ...]:
    return tuple(word for word in text.strip("[]()").split(",") if word)
