"""Run the robot's binary against a simulated robot, in real time or compared with the trainer.

usage: robot-rl sim2sim [key=value ...]

{Options}

  robot-rl sim2sim run=latest                          run for 10 s in real time
  robot-rl sim2sim run=latest viewer=true seconds=0    drive it in the browser
  robot-rl sim2sim run=latest faults=drop=0.1@2,nan@5  lose states, then send a NaN
  robot-rl sim2sim run=latest episodes=20              the trainer's evaluation through the binary, and the trainer's
  robot-rl sim2sim run=latest kill=rear@4              of a team: a binary a robot, of which one is killed after 4 s

The robot hangs on a gantry until it stands. Faults: kind=value:joint@start-end, in seconds after the policy started:
{kinds}
{CHANGES_HELP}
"""

import contextlib
import dataclasses
import functools
import math
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from robot_rl.cli.options import MAX_ENVS, MAX_SEED, PolicyOptions, option, parse_value, read
from robot_rl.cli.table import two_columns
from robot_rl.errors import UserError
from robot_rl.runs.outputs import SESSION, check_optional
from robot_rl.settings.checks import to_float

if TYPE_CHECKING:
    from robot_rl.runs.policies import PolicySource
    from robot_rl.sim2sim.faults import Fault
    from robot_rl.sim2sim.session import Kill


@dataclass(kw_only=True, slots=True)
class Options(PolicyOptions):
    """Options of robot-rl sim2sim."""

    seconds: float = option(10.0, "how long the policy runs, or the longest episode [s]; 0: until Ctrl-C")
    episodes: int = option(0, "instead of a session: worlds of a comparison with the trainer", least=0, most=MAX_ENVS)
    transport: str = option("udp", "udp, shm, or dds if the runtime was built with it")
    command: str = option(
        "task", "task (drawn), script, a joystick such as /dev/input/js0, or one number for each component"
    )
    faults: str = option("", "faults to inject, such as delay=0.03@2-4,nan@6, or a file.json")
    kill: str = option("", "of a team: whose binary is killed and when, such as rear@4 [s after the policies start]")
    recover: bool = option(True, "after a fault or a fall hang the robot up and start again")
    viewer: bool = option(False, "show it in the browser, with buttons for the operator")
    host: str = option("127.0.0.1", "address that the viewer listens on")
    port: int = option(8080, "TCP port of the viewer; 0 takes a free one", least=0, most=65535)
    tick: float = option(0.002, "physics step and period of the states [s]; 0: the training's physics step")
    settings: str = option("", "settings of the binary, such as stand_s:1,limits.tilt_rad:0.8")
    log: str = option("", "folder or file.mcap for the binary's log")
    all_states: bool = option(False, "with episodes: send the state of each physics step, not only of control steps")
    seed: int | None = option(None, "seed of the worlds; by default one that no training uses", least=0, most=MAX_SEED)
    out: str = option("", "file for the figures as JSON")


def kinds() -> str:
    """Return a line for each kind of fault."""
    from robot_rl.sim2sim.faults import KINDS

    return two_columns([(name, kind.text) for name, kind in KINDS.items()])


def run(arguments: Sequence[str]) -> int:
    """Run a session or an evaluation; print and write its figures."""
    from robot_rl.sim2sim.faults import read_faults

    options, changes = read(Options, arguments)
    _check(options)
    settings, faults = read_settings(options.settings), read_faults(options.faults)
    out = check_optional("out", options.out, SESSION)
    options.refuse_unsupported("sim2sim")
    source = options.find_policy({**changes, "device": "cpu", "engine": "mujoco"})
    is_team = bool(source.cfg.task.robots)
    _check_team(options, changes, is_team=is_team)
    from robot_rl.sim2sim.binary import load_runtime
    from robot_rl.sim2sim.session import read_kills

    kills = read_kills(options.kill, list(source.cfg.task.robots), options.seconds)
    load_runtime()
    bundle = source.find_bundle()
    result = (
        _episodes(source, options, bundle, settings)
        if options.episodes
        else _session(source, options, bundle, settings, faults=faults, kills=kills)
    )
    result = {"policy": source.name, "bundle": str(bundle)} | result
    if out is not None:
        from robot_rl.files import write_json

        write_json(out, result)
        print(out)
    return 0 if result.get("holds", True) else 1


def _check(options: Options) -> None:
    if options.episodes and not 0 < options.seconds <= 3600:
        raise UserError("seconds", options.seconds, "must be in (0, 3600]")
    from robot_rl.sim2sim.binary import DAY_S

    if not 0 <= options.seconds <= DAY_S:
        raise UserError("seconds", options.seconds, f"must be in [0, {DAY_S:g}]")
    if options.transport not in ("udp", "shm", "dds"):
        raise UserError("transport", options.transport, "must be udp, shm or dds")
    if options.episodes:
        for name, default in (("faults", ""), ("viewer", False), ("command", "task"), ("log", ""), ("kill", "")):
            if getattr(options, name) != default:
                raise UserError(name, getattr(options, name), "is only for a session", "omit episodes")
    elif options.all_states:
        raise UserError("all_states=True: is only for episodes; a session sends all states")


def _check_team(options: Options, changes: Mapping[str, Any], *, is_team: bool) -> None:
    """Refuse options that are only for one robot, or only for a team."""
    if not is_team and options.kill:
        raise UserError("kill", options.kill, "is for a task with several robots", "faults= has the faults of one")
    lone = (("faults", ""), ("command", "task"), ("recover", True))
    for name, default in lone if is_team else ():
        if getattr(options, name) != default:
            raise UserError(
                name, getattr(options, name), "is for a task of one robot", "a team takes kill=robot@seconds"
            )
    drawn = [key for key in changes if key.startswith("team.")] if is_team and not options.episodes else []
    if drawn:
        raise UserError(f"{drawn[0]}: all robots take part in a session; it is for episodes=")


def read_settings(text: str) -> dict[str, float]:
    """Parse settings of the binary from "name:value,name:value"."""
    found: dict[str, float] = {}
    for part in filter(None, (part.strip() for part in text.split(","))):
        name, colon, value = part.partition(":")
        number = parse_value(value, name) if colon else None
        figure = to_float(number)
        if figure is None or not math.isfinite(figure):
            raise UserError("settings", text, f"'{part}' must be name:number, such as limits.tilt_rad:0.8")
        if name.strip() in found:
            raise UserError("settings", text, f"{name.strip()} is given twice", "leave one of them out")
        found[name.strip()] = figure
    return found


def _seed(options: Options) -> int:
    from robot_rl.evaluation import EVALUATION_SEED

    return EVALUATION_SEED if options.seed is None else options.seed


def _bundles(bundle: Path, task: Any) -> dict[str, Path]:
    """Return the bundle of each robot of a task by name."""
    from robot_rl.evaluation.bundle_folders import team_bundles
    from robot_rl.sim2sim.plant import LONE

    return team_bundles(bundle, task) if task.robots else {LONE: bundle}


def _session(
    source: "PolicySource",
    options: Options,
    bundle: Path,
    settings: Mapping[str, float],
    *,
    faults: "tuple[Fault, ...]",
    kills: "tuple[Kill, ...]",
) -> dict[str, Any]:
    from robot_rl.sim2sim.session import Session, SessionCfg
    from robot_rl.sim2sim.view import View

    task = source.cfg.task
    cfg = SessionCfg(
        seconds=options.seconds,
        transport=options.transport,
        command=options.command,
        faults=faults,
        kills=kills,
        recover=options.recover,
        seed=_seed(options),
        tick_s=options.tick,
        settings=dict(settings),
        log=options.log,
    )
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="sim2sim-")))
        session = stack.enter_context(contextlib.closing(Session(task, _bundles(bundle, task), cfg, folder)))
        if options.viewer:
            view = View(session, options.host, options.port, drives=options.command == "task")
            stack.callback(view.close)
            print(f"{view.url}  (Ctrl-C ends it)", flush=True)
        with contextlib.suppress(KeyboardInterrupt):
            session.run()
        result = session.report()
    if task.robots:
        _show_team(source.name, result, {kill.robot: kill.at_s for kill in kills})
    else:
        _show_session(source.name, result, can_fall=task.robot.base_body is not None)
    return result


def _show_team(name: str, result: Mapping[str, Any], kills: Mapping[str, float]) -> None:
    print(f"{name}: the policies ran for {result['policy_s']:g} s, {result['late_ticks']} late ticks")
    if "messages" in result:
        print(
            f"  {result['messages']['sent']} messages sent, {result['messages']['lost']} lost on their way to a robot"
        )
    for robot, row in result["robots"].items():
        what = "killed" if row["killed"] else "ran"
        commands = row["commands"]
        print(f"  {robot}: {what}, policy for {row['policy_s']:g} s, {commands['lost']} commands lost")
        for fault in row["faults"]:
            print(f"    damped by {fault['fault']} after {fault['policy_s']:.2f} s")
        if not row["killed"] and robot in kills:
            print(f"    kill={robot}@{kills[robot]:g}: the session ended before")
        for line in _reasons(row):
            print(f"    {line}")
        _show_metrics(row["metrics"], "    ")


def _show_metrics(metrics: Mapping[str, Mapping[str, float]], indent: str) -> None:
    for metric, value in metrics.items():
        print(f"{indent}{metric}: mean {value['mean']:.4g}, at the end {value['end']:.4g}")


def _reasons(result: Mapping[str, Any]) -> list[str]:
    """Return the binary's own lines about its faults, the first of each joint; not of the stops that were requested."""
    rows = result["binary"].get("changes", ())
    lines = [row["text"] for row in rows if "text" in row and row["fault"] != "operator_stop"]
    return list({line.partition(" at ")[0]: line for line in reversed(lines)}.values())[::-1]


def _show_session(name: str, result: Mapping[str, Any], *, can_fall: bool) -> None:
    print(f"{name}: the policy ran for {result['policy_s']:g} s" + (f", {result['falls']} falls" if can_fall else ""))
    for name_, unit in (("lin_vel_error", "m/s"), ("yaw_vel_error", "rad/s")):
        if result[name_] is not None:
            print(f"  {name_}: {result[name_]:.3f} {unit}")
    _show_metrics(result.get("metrics", {}), "  ")
    for fault in result["faults"]:
        print(f"  fault {fault['fault']} after {fault['policy_s']:.2f} s")
    for line in _reasons(result):
        print(f"    {line}")
    if result["stayed_damped"]:
        print(f"  it stays damped ({result['stayed_damped']}), so the session ends here")
    commands = result["commands"]
    print(f"  {result['states']} states, {commands['received']} commands, {commands['lost']} lost")
    if "state_to_command_us" in commands:
        us = commands["state_to_command_us"]
        print(f"  state to command: p50 {us['p50']:g} us, p99 {us['p99']:g} us, p99.9 {us['p99.9']:g} us")
    if "loop" in result["binary"]:
        print(f"  missed deadlines of the policy: {result['binary']['loop']['missed_deadlines']}")
    for row in result.get("proxy", []):
        after = row["damping_after_ms"]
        how = "no damping until the end" if after is None else f"damped by {row['fault']} after {after:.1f} ms"
        print(f"  injected {row['kind']}: {how if row['happened'] else 'it did not happen'}")


def _episodes(source: "PolicySource", options: Options, bundle: Path, settings: Mapping[str, float]) -> dict[str, Any]:
    from robot_rl.evaluation import evaluate_run, evaluation_task
    from robot_rl.sim2sim.message_relay import delay_messages
    from robot_rl.sim2sim.parity import ParityCfg, compare, evaluate_binaries

    if options.transport == "dds":
        raise UserError("transport=dds: not for an evaluation; must be udp or shm")
    cfg = dataclasses.replace(source.cfg, task=evaluation_task(source.cfg.task))
    parity = ParityCfg(
        episodes=options.episodes,
        seconds=options.seconds,
        seed=_seed(options),
        tick_s=options.tick,
        all_states=options.all_states,
        transport=options.transport,
        settings=dict(settings),
    )
    with tempfile.TemporaryDirectory(prefix="sim2sim-") as folder:
        say = functools.partial(print, " ", flush=True)
        binary = evaluate_binaries(cfg.task, _bundles(bundle, cfg.task), parity, Path(folder), say=say)
    policy = source.torch_policy()

    def make_env() -> Any:
        env = cfg.make_env(num_envs=options.episodes, seed=parity.seed)
        if cfg.task.robots:
            delay_messages(env)
        return env

    trainer = evaluate_run(
        make_env,
        policy=policy,
        bundle=None if policy is not None else bundle,
        seconds=options.seconds,
    )
    kind = "torch" if policy is not None else "onnx"
    verdict = compare(binary["episodes"], trainer[kind], trainer["metrics"])
    stopped = sum(bool(faults) for faults in binary["faults"])
    _show_parity(f"{source.name}: {options.episodes} episodes of {trainer['seconds']:g} s", verdict, kind)
    _show_stops(binary, stopped)
    about = {"episodes": options.episodes, "seconds": trainer["seconds"], "all_states": options.all_states}
    return about | {"trainer": trainer} | binary | {"stopped": stopped, "parity": verdict, "holds": verdict["holds"]}


def _show_parity(episodes: str, verdict: Mapping[str, Any], kind: str) -> None:
    print(f"{episodes}, the binary against the trainer ({kind})")
    for what, row in verdict.items():
        if what == "holds":
            continue
        is_within = row["difference"] <= row["bound"]
        word = "within" if is_within else "better and beyond" if row["holds"] else "BEYOND"
        print(
            f"  {what:<13} {row['binary']:.4f} against {row['trainer']:.4f}: "
            f"differs by {100 * row['difference']:.2f} %, {word} {100 * row['bound']:g} %"
        )


def _show_stops(binary: Mapping[str, Any], stopped: int) -> None:
    print(f"  the safety layer stopped it in {stopped} of {len(binary['faults'])} episodes")
    reports = binary.get("binaries", {"": binary.get("binary")})
    for robot, report in reports.items():
        for line in _reasons({"binary": report}):
            print(f"    {robot}{': ' if robot else ''}{line}")
