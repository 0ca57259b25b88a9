"""Run the steps from a training to a robot as one graph, here or as a workflow of NVIDIA OSMO.

usage: robot-rl flow                                          lists the flows
       robot-rl flow three_computers task=<name> [key=value ...]
       robot-rl flow my_flow.py task=<name> [key=value ...]   a copy of one, or <module>:<function>
       robot-rl flow three_computers copy=my_flow.py
       robot-rl flow resume <id> [key=value ...]
       robot-rl flow gate FILE.json '<gate>' ...

{flows}

{Options}
  train.<setting>=       a setting of the training, such as train.max_iterations=60
  gates.<name>=          another bound, of that gate in every step or of gates.<step>.<name>
  platform.<computer>=   osmo: the platform of train, simulation or edge

  robot-rl flow three_computers task=go2_flat                        train, evaluate, package, time the binary
  robot-rl flow three_computers task=go2_flat key=robot.key          with a signature (robot-rl sign new=robot.key)
  robot-rl flow three_computers task=go2_flat target=osmo image=robot-rl:0.2.0 platform.train=h100
  robot-rl flow real_to_sim task=go2_flat log=chirps.mcap            identify the robot first, train for it, certify
  robot-rl flow gate eval.json 'velocity_error:onnx.lin_vel_error.mean<=0.2'

Here each step runs in its own process; a step that is done is not repeated. Everything of a flow is in
<root>/.flows/<id>/: state.json, a log for each step, flow.json with all figures, summary.md and summary.html.
Exit codes: 0 all gates passed, 1 a gate failed (one line names it) or a fault, 2 a request that cannot be fulfilled,
85 and 130 stopped by a signal; else the code of the step that failed (docs/flow.md).
"""

import shlex
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from robot_rl.cli.options import option, read_all
from robot_rl.cli.table import print_table, two_columns
from robot_rl.errors import ExitCode, UserError, suggest

if TYPE_CHECKING:
    from robot_rl.cluster.flow.dag import Flow, FlowCfg
    from robot_rl.cluster.flow.local import Ending, Executor
    from robot_rl.cluster.launchers.launcher import Launcher


HERE = "local"
"""The target that is this machine."""


@dataclass(kw_only=True, slots=True)
class Options:
    """Options of robot-rl flow."""

    task: str = option("", "the task")
    target: str = option(HERE, "local, or osmo: write a workflow")
    root: str = option("runs", "the directory of all runs")
    jobs: int = option(1, "local: how many steps at a time", least=1, most=64)
    id: str = option("", "the flow's id, also the run's; an existing one is resumed; by default a new one")
    key: str = option("", "private key to sign the bundle with; none: it is not signed")
    log: str = option("", "real_to_sim: logs of the robot, such as a.mcap,b.mcap")
    held: str = option("", "real_to_sim: a log that is only predicted; by default the last one, or a part of it")
    certify: int = option(0, "episodes of the bundle's certificate, such as 1000; 0: it gets none", least=0, most=10**7)
    cpus: int = option(8, "osmo: cores of the training", least=1, most=1024)
    gpus: int = option(1, "osmo: GPUs of the training", least=0, most=64)
    time: int = option(240, "osmo: longest time of the training [min]", least=1, most=100_000)
    image: str = option("", "osmo: container image with robot-rl")
    out: str = option("", "osmo: file of the workflow; flows/<id>.yaml by default")
    copy: str = option("", "copy the flow's file to this one, and do nothing else")


def flows() -> str:
    """Return a line for each flow that comes with the project."""
    from robot_rl.cluster.flow.load import REGISTRY

    return two_columns(list(REGISTRY.describe().items()))


def run(arguments: Sequence[str]) -> int:
    """List, run, copy or resume a flow, write its workflow, or check gates."""
    if not arguments:
        print(flows())
        return 0
    first, *others = arguments
    if first == "gate":
        return _gate(others)
    if first == "resume":
        return _resume(others)
    if "=" in first:
        raise UserError(f"flow {first}: name a flow first; {suggest('', _known())}")
    options, parts = _read(others)
    if options.copy:
        from robot_rl.cluster.flow.load import copy_flow

        print(copy_flow(first, options.copy))
        return 0
    return _begin(first, others, options, parts)


def _known() -> Sequence[str]:
    from robot_rl.cluster.flow.load import REGISTRY

    return list(REGISTRY.files())


@dataclass(kw_only=True, slots=True)
class Parts:
    """What is given by a dotted name: words of the training, bounds of gates, platforms of the computers."""

    train: tuple[str, ...]
    gates: dict[str, float]
    platforms: dict[str, str]


def _read(words: Sequence[str]) -> tuple[Options, Parts]:
    from robot_rl.cluster.flow.gates import read_bound

    flow_words, train = [], []
    gates: dict[str, float] = {}
    platforms: dict[str, str] = {}
    for word in words:
        key, equals, text = word.partition("=")
        group, _, name = key.removeprefix("~").partition(".")
        if group == "train" and name and (equals or key.startswith("~")):
            train.append(f"{'~' if key.startswith('~') else ''}{name}{equals}{text}")
        elif group in ("gates", "platform") and name and equals and not key.startswith("~"):
            values = gates if group == "gates" else platforms
            if name in values:
                raise UserError(f"{word}: {key} is given twice; leave one of them out")
            if group == "gates":
                gates[name] = read_bound(word, text)
            else:
                platforms[name] = text
        else:
            flow_words.append(word)
    return read_all(Options, flow_words), Parts(train=tuple(train), gates=gates, platforms=platforms)


def _begin(source: str, words: Sequence[str], options: Options, parts: Parts) -> int:
    """Run a flow here, or write its workflow."""
    from robot_rl.cluster.flow.dag import FlowCfg
    from robot_rl.cluster.flow.load import find_maker, make, new_id
    from robot_rl.runs.run_dir import check_run_id

    is_local = options.target == HERE
    writer = None if is_local else _find_writer(options.target)
    find_maker(source)
    if not options.task:
        raise UserError("task= is missing; robot-rl list shows the tasks")
    cfg = FlowCfg(
        task=options.task,
        id=_check_id(check_run_id(options.id, "id")) if options.id else new_id(),
        root=options.root.rstrip("/") or "/",
        key=options.key,
        train=parts.train,
        cpus=options.cpus,
        gpus=0 if is_local else options.gpus,
        minutes=options.time,
        certify=options.certify,
        log=tuple(filter(None, options.log.split(","))),
        held=options.held,
    )
    flow = make(source, cfg).with_bounds(parts.gates)
    if writer is not None:
        return _write(flow, writer, options, parts, shlex.join(["robot-rl", "flow", source, *words]))
    given = {word.partition("=")[0] for word in words} & {"out", "image", "gpus", "cpus", "time"}
    for name in sorted(given) + [f"platform.{name}" for name in parts.platforms]:
        raise UserError(f"{name}: is for target={' or '.join(_writers())}, this is target={HERE}; omit it")
    return _run_here(flow, cfg, options.jobs, {"flow": source, "options": [w for w in words if _is_kept(w)]})


def _writers() -> dict[str, "type[Launcher]"]:
    """Return the launchers for the clusters of which a flow can be written, by name."""
    from robot_rl.cluster.launchers import list_launchers

    return {name: launcher for name, launcher in list_launchers().items() if launcher.flow_renderer}


def _find_writer(target: str) -> "type[Launcher]":
    """Return the launcher of a target; raise UserError if no flow can be written for its cluster."""
    from robot_rl.cluster.launchers import list_targets

    writers = _writers()
    if target in writers:
        return writers[target]
    if target in [launcher.name for launcher in list_targets().values()]:
        right = f"run robot-rl flow itself in a job of the cluster, and trainings by launcher={target}"
        raise UserError("target", target, f"flows are written for {', '.join(writers)} only", right)
    raise UserError("target", target, suggest(target, (HERE, *writers)))


def _check_id(flow_id: str) -> str:
    """Refuse an id that the training would read as a number."""
    if not flow_id[0].isalpha():
        raise UserError("id", flow_id, "must begin with a letter")
    return flow_id


def _is_kept(word: str) -> bool:
    return word.partition("=")[0] not in ("id", "root", "jobs", "target")


def _write(flow: "Flow", writer: "type[Launcher]", options: Options, parts: Parts, made_by: str) -> int:
    from robot_rl.files import write_atomic
    from robot_rl.plugins import load_reference
    from robot_rl.runs.outputs import WORKFLOW, check_output

    out = check_output("out", options.out or f"flows/{flow.id}.yaml", WORKFLOW)
    render = load_reference(writer.flow_renderer, "target")
    write_atomic(out, render(flow, options.image, parts.platforms, made_by))
    for note in flow.notes:
        print(f"note: {note}")
    print(f"{out}: {len(flow.steps)} steps for {writer.name}; submit with: {' '.join(writer.program)} {out}")
    return 0


def _run_here(flow: "Flow", cfg: "FlowCfg", jobs: int, about: dict[str, Any]) -> int:
    from robot_rl.cluster.flow.load import named_code
    from robot_rl.cluster.flow.local import Executor
    from robot_rl.cluster.flow.show import Progress
    from robot_rl.cluster.flow.state import FlowState, flow_folder
    from robot_rl.runs.outputs import check_folder
    from robot_rl.runs.trust import seal_code

    check_folder("root", cfg.root)
    _check_tools(flow, cfg)
    folder = flow_folder(cfg.root, flow.id)
    state = FlowState(folder, {**about, "task": cfg.task})
    if (folder / "state.json").is_file():
        before = FlowState.load(folder)
        for name, given in (("flow", about["flow"]), ("task", cfg.task)):
            if before.about.get(name) != given:
                raise UserError("id", flow.id, f"is there with {name}={before.about.get(name)}", "give another id=")
        state.steps, state.created = before.steps, before.created
    if code := named_code(about["flow"]):
        state.about["seal"] = seal_code(code)
    state.acquire()
    try:
        for note in flow.notes:
            print(f"note: {note}")
        executor = Executor(flow, state, jobs=jobs)
        print(f"{flow.name} {flow.id}: {len(flow.steps)} steps, in {folder}", flush=True)
        with Progress(executor):
            ending = executor.run()
        return _report(executor, ending)
    finally:
        state.release()


def _check_tools(flow: "Flow", cfg: "FlowCfg") -> None:
    """Check the needs of later steps before the training: a key that can sign, the runtime."""
    if cfg.key:
        from robot_rl_deploy.signing import sign

        sign(b"", Path(cfg.key))
        if not Path(f"{cfg.key}.pub").is_file():
            raise UserError("key", cfg.key, f"there is no {cfg.key}.pub", "robot-rl sign new=<file> makes both")
    if any(step.command[0] == "robot-rl-infer" for step in flow.steps):
        from robot_rl.sim2sim.binary import load_runtime

        load_runtime()


def _report(executor: "Executor", ending: "Ending") -> int:
    """Print the table and write the results; return the exit code."""
    from robot_rl.cluster.flow.figures import HEAD, table_rows, write_results

    rows = table_rows(executor.flow, executor.state)
    print_table(HEAD, rows, right=(3,), least=100)
    for path in (*write_results(executor.flow, executor.state), *_existing(executor.flow)):
        print(path)
    if ending.line:
        print(f"robot-rl: {' '.join(ending.line.split())}", file=sys.stderr)
    return int(ending.code)


def _existing(flow: "Flow") -> list[str]:
    return [path for path in flow.links.values() if Path(path).exists()]


@dataclass(kw_only=True, slots=True)
class ResumeOptions:
    """Options of robot-rl flow resume."""

    id: str = option("", "the flow, which may be given as only <id>")
    root: str = option("runs", "the directory of all runs")
    jobs: int = option(1, "how many steps at a time", least=1, most=64)
    trust: bool = option(False, "run the file or module that the flow names, if the flow was not begun here")


def _resume(words: Sequence[str]) -> int:
    """Go on with a flow; bounds of gates and settings of the training can be changed."""
    from robot_rl.cluster.flow.load import named_code
    from robot_rl.cluster.flow.state import FlowState, flow_folder
    from robot_rl.runs.run_dir import check_run_id
    from robot_rl.runs.trust import is_sealed

    def is_own(word: str) -> bool:
        return "=" not in word or word.partition("=")[0] in ("id", "root", "jobs", "trust")

    options = read_all(ResumeOptions, [word for word in words if is_own(word)], first="id")
    if not options.id:
        raise UserError("flow resume: name the flow: robot-rl flow resume <id>")
    state: FlowState = FlowState.load(flow_folder(options.root, check_run_id(options.id, "id")))
    source = state.about["flow"]
    code = named_code(source)
    if code and not options.trust and not is_sealed(code, state.about.get("seal", "")):
        raise UserError("id", options.id, f"was not begun here and would run {source}", "read it, and give trust=true")
    new = [word for word in words if not is_own(word)]
    changed = {word.partition("=")[0] for word in new}
    merged = [word for word in map(str, state.about["options"]) if word.partition("=")[0] not in changed]
    all_words = [*merged, *new, f"id={options.id}", f"root={options.root}", f"jobs={options.jobs}"]
    begin_options, parts = _read(all_words)
    return _begin(source, all_words, begin_options, parts)


def _gate(words: Sequence[str]) -> int:
    """Check gates; print a line for each, those that failed last and on stderr as one."""
    from robot_rl.cluster.flow.gates import FORM, judge_file, read_word

    if len(words) < 2:
        raise UserError(f"flow gate: give a JSON file and at least one gate: {FORM}")
    file, *texts = words
    gates = [read_word(text) for text in texts]
    if not Path(file).is_file():
        raise UserError(f"flow gate: {file} does not exist")
    verdicts = judge_file(Path(file), gates)
    for one in verdicts:
        if one.holds:
            print(one.line())
    failed = [one.line() for one in verdicts if not one.holds]
    if failed:
        print(f"robot-rl: {'; '.join(failed)} ({file})", file=sys.stderr)
    return ExitCode.FAULT if failed else ExitCode.DONE
