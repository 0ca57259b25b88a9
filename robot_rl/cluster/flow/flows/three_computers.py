"""Train, evaluate in simulation, package, and benchmark the robot's binary: a flow over three computers.

    train -> export -> evaluate, other_engine, disturbed, sim2sim -> gates -> [certify -> gates ->] sign -> package
    -> edge -> gates

To change it, copy it (`robot-rl flow three_computers copy=my_flow.py`), edit the copy and run it
(`robot-rl flow my_flow.py task=...`). Each step is a command as one would type it. In a word, `step["output"]` is the
path of another step's output, and makes this step wait for that one.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from robot_rl.cluster.flow.dag import ABOVE, BELOW, Computer, Flow, FlowCfg, Gate, Output, Resources, Step, gate_step
from robot_rl.errors import UserError

EPISODES, SECONDS = 100, 10
"""Worlds of an evaluation, and the length of their episodes [s]."""
OTHER_EPISODES, OTHER_SECONDS = 16, 5
"""The same in the other engine: on a CPU mujoco_warp is slow."""
BINARY_EPISODES = 20
"""Worlds that the binary walks through, one after another."""
BENCH_SECONDS = 10
FAILURES, DISTURBED_FAILURES = 0.05, 0.10
"""Largest share of episodes that failed."""
PARITY, PARITY_SURVIVAL = 0.10, 0.05
"""How much worse a metric may be through the binary, as a share of the trainer's; the same of survival, in absolute."""
DELAY_S = 0.02
"""Least delay from action to motors that a certified policy bears."""
AGREEMENT = 1e-4
"""Largest difference of an action between the torch policy and the exported one."""
METRIC_BOUNDS: dict[str, dict[str, float]] = {"go2_flat": {"lin_vel_error": 0.2}}
"""Bounds of a task's metric that are stricter than its `solved`."""
GATE_NAMES: dict[str, str] = {"lin_vel_error": "velocity_error"}
"""Names of gates that differ from the metric's."""
HARDER: dict[str, float] = {
    "events.push.xy": 2.0,
    "events.push.yaw": 2.0,
    "events.mass.mass": 2.0,
    "events.mass.com": 1.5,
    "events.friction.lo": 0.75,
    "events.motors.lo": 0.9,
    "events.motors.hi": 1.1,
    "events.motors.strength_lo": 0.9,
    "events.motors.strength_hi": 1.1,
}
"""Setting -> the factor by which the step `disturbed` changes it, if the task has it."""


def make_flow(cfg: FlowCfg) -> Flow:
    """Build the flow of a task; raise UserError if the task or a setting of the training does not fit."""
    from robot_rl.runs.settings import change, default_tree, resolve
    from robot_rl.sources.registry import refuse_unsupported

    if cfg.log or cfg.held:
        raise UserError("log" if cfg.log else "held", ",".join(cfg.log) or cfg.held, "is of the flow real_to_sim")
    refuse_unsupported(cfg.task, "sim2sim")
    settings = read_settings(cfg.train)
    device, learner = (str(settings.get(key, value)) for key, value in (("device", "auto"), ("learner", "")))
    tree = change(default_tree(cfg.task, device, learner), settings)
    task = resolve({**tree, "root": cfg.root, "run_id": cfg.id})
    if not task.task.deployable:
        raise UserError(
            "task", cfg.task, "no robot can measure what its actor sees", "name a task that can be deployed"
        )
    if task.task.robots:
        raise UserError("task", cfg.task, "is for several robots", "three_computers deploys one")
    trained_in = "mujoco_warp" if cfg.gpus and tree["engine"] == "auto" else task.engine
    other = "mujoco" if trained_in == "mujoco_warp" else "mujoco_warp"
    goal = goal_gates(cfg.task, task.task)
    train, export = training_steps(cfg)
    evaluations, left_out = evaluation_steps(cfg, train, export, tree, other)
    gates = [
        gate_step(step, "figures", [*goal, failures(DISTURBED_FAILURES if step.name == "disturbed" else FAILURES)])
        for step in evaluations
    ]
    gates[0] = gate_step(
        evaluations[0], "figures", [*gates[0].gates, *agreement(quantized=task.learner.precision.is_quantized)]
    )
    sim2sim = binary_step(cfg, train, export)
    gates.append(gate_step(sim2sim, "figures", parity_gates(task.task)))
    checked = [step for pair in zip((*evaluations, sim2sim), gates, strict=True) for step in pair]
    report = Step(
        name="report",
        command=("robot-rl", "report", f"run={train['run']}", f"root={cfg.root}"),
        after=("evaluate",),
        outputs={"page": Output(path=f"{train.outputs['run'].path}/report.html")},
    )
    bundled, certificate = export, ()
    if cfg.certify:
        bundled = certify_step(cfg, train, export, after=tuple(step.name for step in gates))
        certificate = (bundled, gate_step(bundled, "certificate", certificate_gates()))
        gates.append(certificate[1])
    packages = package_steps(cfg, train, bundled, after=tuple(step.name for step in gates))
    edge = edge_step(cfg, bundled, signed=packages[0] if cfg.key else None, after=packages[-1].name)
    period_us = task.task.sim.timestep * task.task.sim.decimation * 1e6
    latency = Gate(
        name="p99", path="inference_us.p99", bound=period_us, text="inference, below the control period [us]"
    )
    gate_edge = gate_step(edge, "figures", [latency])
    unsigned = () if cfg.key else ("the bundle is not signed; key=<file> signs it, robot-rl sign new=<file> makes one",)
    return Flow(
        name="three_computers",
        id=cfg.id,
        steps=(train, export, *checked, report, *certificate, *packages, edge, gate_edge),
        notes=(*left_out, *unsigned),
        links={"report of the run": report.outputs["page"].path, "bundle": export.outputs["bundle"].path},
    )


def read_settings(words: tuple[str, ...]) -> dict[str, Any]:
    """Return the settings of the training by dotted name, without its launcher's, which are checked.

    Raises:
        UserError: The flow sets one itself, or the launcher would end before the training does.
    """
    from robot_rl.cluster.launchers import read_launcher
    from robot_rl.settings.words import read_changes

    launcher_words = [word for word in words if word.lstrip("+~").partition("=")[0].partition(".")[0] == "launcher"]
    changes = read_changes([word for word in words if word not in launcher_words])
    for key in ("task", "run_id", "root"):
        if key in changes:
            raise UserError(
                f"train.{key}", changes[key], "is set by the flow", f"give {('id' if key == 'run_id' else key)}="
            )
    named = [word.partition("=")[2] for word in launcher_words if word.startswith("launcher=")]
    if launcher_words and not named:
        raise UserError(f"train.{launcher_words[0]}: says not which launcher; add train.launcher=<name>")
    settings = read_changes([word for word in launcher_words if not word.startswith("launcher=")])
    if named and read_launcher(named[0], {key.partition(".")[2]: each for key, each in settings.items()}).is_elsewhere:
        raise UserError("train.launcher", named[0], "ends before the training does", "run the flow in a job there")
    return changes


def training_steps(cfg: FlowCfg) -> tuple[Step, Step]:
    """Return the steps that train and export, on the computer for training."""
    folder = f"{cfg.root}/{cfg.task}/{cfg.id}"
    gpu = Resources(
        computer=Computer.TRAIN, cpus=cfg.cpus, gpus=cfg.gpus, memory_gb=32 if cfg.gpus else 8, minutes=cfg.minutes
    )
    train = Step(
        name="train",
        command=("robot-rl", "train", f"task={cfg.task}", f"run_id={cfg.id}", f"root={cfg.root}", *cfg.train),
        outputs={"run": Output(path=folder, proof="metrics.jsonl")},
        resources=gpu,
    )
    export = Step(
        name="export",
        command=("robot-rl", "export", f"run={train['run']}", f"root={cfg.root}"),
        outputs={"bundle": Output(path=f"{folder}/policy", proof="policy.onnx")},  # A certificate changes SHA256SUMS.
        resources=Resources(computer=Computer.TRAIN),
    )
    return train, export


def evaluation_steps(
    cfg: FlowCfg, train: Step, export: Step, tree: Mapping[str, Any], other: str
) -> tuple[list[Step], tuple[str, ...]]:
    """Return the steps that evaluate in fresh worlds, and lines about omitted steps."""

    def step(name: str, file: str, *words: str, episodes: int = EPISODES, seconds: float = SECONDS) -> Step:
        return Step(
            name=name,
            command=(
                *("robot-rl", "eval", f"run={train['run']}", f"root={cfg.root}"),
                *(f"episodes={episodes}", f"seconds={seconds}", *words, f"out=@{{{name}.figures}}"),
            ),
            after=(export.name,),
            outputs={"figures": Output(path=file)},
        )

    harder = harder_settings(tree)
    steps = [
        step("evaluate", f"{train.outputs['run'].path}/eval.json"),
        step(
            "other_engine",
            f"{cfg.folder}/other_engine.json",
            f"engine={other}",
            episodes=OTHER_EPISODES,
            seconds=OTHER_SECONDS,
        ),
    ]
    if not harder:
        return steps, (
            f"disturbed is omitted: {cfg.task} is without pushes or randomization that could be made harder",
        )
    return [*steps, step("disturbed", f"{cfg.folder}/disturbed.json", "seed=20261104", *harder)], ()


def harder_settings(tree: Mapping[str, Any]) -> list[str]:
    """Return the words that push and randomize harder than the training does, of the terms that the task has."""
    words = []
    for path, factor in HARDER.items():
        value: Any = tree
        for key in path.split("."):
            value = value.get(key) if isinstance(value, Mapping) else None
        if isinstance(value, int | float) and not isinstance(value, bool):
            words.append(f"{path}={value * factor:.6g}")
    return words


def binary_step(cfg: FlowCfg, train: Step, export: Step) -> Step:
    """Return the step that repeats the evaluation with the robot's binary; it ends with 1 beyond its own bounds."""
    return Step(
        name="sim2sim",
        command=(
            *("robot-rl", "sim2sim", f"run={train['run']}", f"root={cfg.root}", f"episodes={BINARY_EPISODES}"),
            *(f"seconds={SECONDS}", "out=@{sim2sim.figures}"),
        ),
        after=(export.name,),
        outputs={"figures": Output(path=f"{cfg.folder}/sim2sim.json")},
        codes=(0, 1),
    )


def certify_step(cfg: FlowCfg, train: Step, export: Step, after: tuple[str, ...]) -> Step:
    """Return the step that puts a certificate into the bundle, after all others that read the bundle."""
    bundle = export.outputs["bundle"].path
    return Step(
        name="certify",
        command=("robot-rl", "certify", f"run={train['run']}", f"root={cfg.root}", f"budget={cfg.certify}"),
        after=(export.name, *after),
        outputs={
            "bundle": Output(path=bundle, proof="certificate.json"),
            "certificate": Output(path=f"{bundle}/certificate.json"),
        },
    )


def certificate_gates() -> list[Gate]:
    """Return the gates of a certificate: success in the nominal worlds, and the delay that the policy bears."""
    text = "success in the nominal worlds of the certificate"
    success = Gate(name="success", path="nominal.success", bound=1.0 - FAILURES, op=ABOVE, text=text)
    text = "delay from action to motors that the policy bears [s]"
    return [success, Gate(name="delay", path="parameters.delay.high.value", bound=DELAY_S, op=ABOVE, text=text)]


def package_steps(cfg: FlowCfg, train: Step, export: Step, after: tuple[str, ...]) -> list[Step]:
    """Return the steps that sign the bundle, if there is a key, and pack it for the robot's computer."""
    words = (f"run={train['run']}", f"root={cfg.root}")
    public = f"{cfg.key}.pub"
    package = Step(
        name="package",
        command=("robot-rl", "deploy", *words, "to=@{package.tarball}", *((f"key={public}",) if cfg.key else ())),
        after=(export.name, "sign") if cfg.key else (export.name, *after),
        outputs={"tarball": Output(path=f"{cfg.folder}/package")},
        files=(public,) if cfg.key else (),
    )
    if not cfg.key:
        return [package]
    sign = Step(
        name="sign",
        command=("robot-rl", "sign", *words, f"key={cfg.key}"),
        after=(export.name, *after),
        outputs={"signature": Output(path=f"{export.outputs['bundle'].path}/SHA256SUMS.sig")},
        secrets=(cfg.key,),
        files=(public,),
    )
    return [sign, package]


def edge_step(cfg: FlowCfg, export: Step, *, signed: Step | None, after: str) -> Step:
    """Return the step on the robot's computer: the binary checks the bundle and its signature and is timed."""
    bundle = f"{cfg.key}.pub" if signed else ""
    return Step(
        name="edge",
        command=(
            *("robot-rl-infer", "--bundle", export["bundle"], *(("--signed-by", bundle) if signed else ())),
            *("--bench", "--seconds", str(BENCH_SECONDS), "--report", "@{edge.figures}"),
        ),
        after=(after, *((signed.name,) if signed else ())),
        outputs={"figures": Output(path=f"{cfg.folder}/edge.json")},
        resources=Resources(computer=Computer.EDGE),
        files=(bundle,) if signed else (),
    )


def goal_gates(name: str, task: Any) -> list[Gate]:
    """Return the gate of the metric that the task is solved by, on the exported policy."""
    if task.solved is None:
        return []
    metric = str(task.solved[0]).removeprefix("tracking/")
    about = task.metrics[metric].info
    bound = METRIC_BOUNDS.get(name, {}).get(metric, float(task.solved[1]))
    op = BELOW if about.better == "smaller" else ABOVE
    text = f"{metric} of the exported policy" + ("" if about.unit == "1" else f" [{about.unit}]")
    return [Gate(name=GATE_NAMES.get(metric, metric), path=f"onnx.{metric}.mean", bound=bound, op=op, text=text)]


def failures(bound: float) -> Gate:
    """Return the gate of the share of episodes that failed."""
    return Gate(name="failure_rate", path="onnx.failure_rate.mean", bound=bound, text="share of episodes that failed")


def agreement(*, quantized: bool) -> list[Gate]:
    """Return the gate of the difference between the torch policy and the exported one.

    In less than float32, a difference within the bound of each state, which the evaluation compares, also passes.
    """
    text = "largest difference of an action, torch and ONNX"
    unless = "agreement.actions" if quantized else ""
    return [Gate(name="action_error", path="agreement.action_error", bound=AGREEMENT, text=text, unless=unless)]


def parity_gates(task: Any) -> list[Gate]:
    """Return the gates of the binary against the trainer: survival, metrics, and that nothing is stopped."""
    gates = [Gate(name="stopped", path="stopped", bound=0.0, text="episodes that the safety layer stopped")]
    text = "difference of survival, the binary and the trainer"
    gates.append(Gate(name="survival", path="parity.survival.difference", bound=PARITY_SURVIVAL, text=text))
    for metric, term in task.metrics.items():
        if term.info.better:
            where = f"parity.{metric}"
            text = f"{metric}, how much worse through the binary, as a share"
            gates.append(
                Gate(
                    name=f"{metric}_parity",
                    path=f"{where}.difference",
                    bound=PARITY,
                    text=text,
                    unless=f"{where}.better",
                )
            )
    return gates
