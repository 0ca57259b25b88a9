"""How far the policy that learns, the one that acts, and the one on the robot are from each other, by precision.

    python benchmarks/precision_mismatch.py run=latest
    python benchmarks/precision_mismatch.py run=go2_flat/latest sensitivity=int8 out=mismatch.json

A policy is up to three: in the update, in the rollouts, and as the robot runs it. In one precision throughout they are
the same. In two flows that are common they are not: rollouts in int8 or e4m3 with an update in bfloat16, where the
training is off-policy without anything that corrects it (Jet-RL, arXiv 2601.14243), and a training in float32 with
quantization after it. Each flow is measured on the weights of a run and on the states that its policy sees in fresh
worlds; sensitivity= adds what it costs to compute each layer in bf16, fp8 or int8. What trainings in each flow reach is
measured by precision.py.
"""

from __future__ import annotations

import contextlib
import dataclasses
import importlib.util
import math
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from robot_rl_deploy.bundle import Bundle, read_bundle
from robot_rl_deploy.contract import TrainingSpec
from robot_rl_deploy.policy import open_session
from torch import Tensor
from words import read_words, run_script

from robot_rl.cli.table import print_table
from robot_rl.errors import UserError
from robot_rl.evaluation import EVALUATION_SEED, evaluation_task
from robot_rl.evaluation.meter import summarize
from robot_rl.evaluation.policies import Tracer
from robot_rl.evaluation.rollout import measure
from robot_rl.files import write_json
from robot_rl.learn.policy import TrainedPolicy
from robot_rl.learn.precision.conversion import in_precision, layers_of
from robot_rl.learn.precision.kernels import describe
from robot_rl.machine import machine_facts, package_versions
from robot_rl.runs.export import no_precision
from robot_rl.runs.policies import PolicySource, find_policy
from robot_rl.settings.precision import PRECISIONS, PrecisionCfg

KNOWN = {"run": "latest", "root": "runs", "episodes": "100", "seconds": "10", "sensitivity": "", "out": ""}
FLOW = ("name", "update", "rollout", "robot")
COLUMNS = {
    "log_ratio": "E|log ratio|",
    "kl_onnx": "KL(train || ONNX)",
    "kl_binary": "KL(train || binary)",
    "action_onnx": "actions differ by",
}
Array = NDArray[np.float32]
Run = Callable[[Array, Array], tuple[Array, Array]]
"""Takes observations (N, D) and a state (N, S), and returns actions (N, A) and the state after them."""


def flows(own: PrecisionCfg) -> list[dict[str, str]]:
    """Return FLOW -> name and precisions: the flow of a run first, then those that it is compared with."""
    acting = own.rollout or own.mode
    name = f"{own.mode} throughout" if acting == own.mode else f"update {own.mode}, rollouts {acting}"
    found = [(name, own.mode, acting, own.mode)]
    found += [(f"update bf16, rollouts {mode}", "bf16", mode, mode) for mode in ("int8", "fp8")]
    found += [(f"fp32, {mode} after training", "fp32", "fp32", mode) for mode in ("int8", "fp8")]
    several = list({flow[1:]: flow for flow in reversed(found)}.values())[::-1]
    return [dict(zip(FLOW, flow, strict=True)) for flow in several]


class Mismatch:
    """Compares a run's policy with itself in other precisions.

    Attributes:
        own: the run's precision.
        actor: the run's policy.
        metric: the task's own figure that is compared, such as a tracking error; "" where it has none.
    """

    def __init__(self, source: PolicySource, *, episodes: int, seconds: float) -> None:
        """Simulate a run's policy in so many worlds; raise UserError with the line of `no_precision`."""
        cfg = source.cfg
        if line := no_precision(cfg):
            raise UserError(line)
        self._cfg, self._task, self._seconds = cfg, evaluation_task(cfg.task), seconds
        self._worlds = dataclasses.replace(cfg.worlds(), num_envs=episodes, seed=EVALUATION_SEED)
        self.own: PrecisionCfg = cfg.learner.precision
        solved = getattr(cfg.task, "solved", None)
        self.metric = solved[0].removeprefix("tracking/") if solved else ""
        term = getattr(cfg.task, "metrics", {}).get(self.metric)
        self._worse = -1.0 if term is not None and term.info.better == "larger" else 1.0
        policy = source.torch_policy("cpu")
        self.actor = policy.actor
        self._trace = Tracer(policy)
        self._variants = {(self.own.mode, ()): (policy, self._simulate(self._trace))}

    def _simulate(self, tracer: Tracer) -> dict[str, Any]:
        """Return mean and deviation of return and metric over episodes."""
        with contextlib.closing(self._cfg.source.make_env(self._task, self._worlds)) as env:
            found = measure(env, tracer, seconds=self._seconds)
        return summarize({name: found[name] for name in ("return", self.metric) if name in found})

    def _variant(self, mode: str, keep: tuple[str, ...] = ()) -> tuple[TrainedPolicy, dict[str, Any]]:
        """Return the policy in another precision, its grids fitted to what the run's own saw, and what it reaches."""
        if (mode, keep) not in self._variants:
            cfg, own = PrecisionCfg(mode=mode, keep=keep), self._variants[self.own.mode, ()][0]
            policy = TrainedPolicy(in_precision(self.actor, cfg, self._trace.outputs).eval(), own.meta, own.path)
            self._variants[mode, keep] = policy, self._simulate(Tracer(policy))
        return self._variants[mode, keep]

    @torch.no_grad()
    def compare(self) -> list[dict[str, Any]]:
        """Return a row for each flow."""
        rows, several = [], flows(self.own)
        with tempfile.TemporaryDirectory(prefix="robot-rl-") as folder:
            modes = dict.fromkeys(flow["robot"] for flow in several)
            runners = {mode: self._runners(mode, Path(folder) / mode) for mode in modes}
            for flow in several:
                print(f"  {flow['name']} ...", file=sys.stderr, flush=True)
                rows.append(flow | self._row(flow, *runners[flow["robot"]]))
        return rows

    @torch.no_grad()
    def sensitivity(self, mode: str) -> list[dict[str, Any]]:
        """Return a row for each layer: what it costs to compute that one in `mode`, and all others in float32.

        The last row is that of all layers in `mode`.
        """
        policy, plain = self._variant("fp32")
        before, rows = self._mean(policy), []
        names = [layer.name for layer in layers_of(self._variant(mode)[0].actor)]
        for chosen in (*names, "all"):
            print(f"  {chosen} ...", file=sys.stderr, flush=True)
            keep = () if chosen == "all" else tuple(name for name in names if name != chosen)
            policy, found = self._variant(mode, keep)
            row = {"layer": chosen, "mode": mode, "return": found["return"]}
            row["cost"] = plain["return"]["mean"] - found["return"]["mean"]
            row["action"] = float((self._mean(policy) - before).abs().mean())
            rows.append(row | self._gap(found, plain))
        return rows

    def _runners(self, mode: str, out: Path) -> tuple[dict[str, Run], Tensor]:
        """Return what runs the policy's bundle in a precision, none without a contract, and the bounds of actions."""
        cfg = self._cfg
        if not getattr(cfg.task, "deployable", False):
            return {}, torch.empty(0)
        training = TrainingSpec(run_id="mismatch", task=cfg.reference, git_commit="unknown", iteration=0)
        groups, actor = tuple(cfg.learner.actor_groups), self._variant(mode)[0].actor
        cfg.source.export(cfg.task, self._worlds, actor, groups=groups, out=out, training=training)
        bundle = read_bundle(out)
        bound = [math.inf if each.clip is None else each.clip for each in bundle.contract.actions]
        return dict(runners(bundle, out)), torch.tensor(bound)

    def _row(self, flow: Mapping[str, str], runs: Mapping[str, Run], bound: Tensor) -> dict[str, Any]:
        """Return the figures of a flow."""
        (learns, found), (acts, _), (_, robot) = (self._variant(flow[key]) for key in FLOW[1:])
        distribution, trace = learns.actor.distribution, self._trace
        out, acted = trace.outputs(learns.actor), trace.outputs(acts.actor)
        params, old = distribution.params(out), distribution.params(acted)
        noise = torch.empty(len(out), learns.actor.action_dim)
        distribution.draw_noise(noise, torch.Generator().manual_seed(0))
        action = distribution.sample(old, noise)
        ratio = (distribution.log_prob(action, params) - distribution.log_prob(action, old)).abs()
        row = {"log_ratio": float(ratio.mean()), "return": robot["return"], **self._gap(robot, found)}
        for name, run in runs.items():
            wanted = torch.minimum(torch.maximum(distribution.mode(params), -bound), bound)
            difference = actions_of(trace, run, learns.actor.state_size) - wanted
            size, shifted = difference.abs(), shift(distribution, params, difference)
            row |= {f"action_{name}": float(size.mean()), f"action_{name}_max": float(size.max())}
            row[f"kl_{name}"] = float(distribution.kl(params, shifted).mean())
        return row

    def _gap(self, found: Mapping[str, Any], other: Mapping[str, Any]) -> dict[str, Any]:
        """Return the metric of an evaluation, and how much worse it is than that of another one."""
        if not self.metric or found.get(self.metric) is None or other.get(self.metric) is None:
            return {}
        mine, theirs = found[self.metric], other[self.metric]
        return {"metric": self.metric, "tracking": mine, "gap": self._worse * (mine["mean"] - theirs["mean"])}

    def _mean(self, policy: TrainedPolicy) -> Tensor:
        distribution = self.actor.distribution
        return distribution.mode(distribution.params(self._trace.outputs(policy.actor)))


def runners(bundle: Bundle, folder: Path) -> Iterator[tuple[str, Run]]:
    """Yield what runs a bundle's network: "onnx", and "binary" where the robot's runtime is installed."""
    session = open_session(bundle)[0]

    def onnx(obs: Array, state: Array) -> tuple[Array, Array]:
        action, _, after = session.run(obs, state)
        return action, after

    yield "onnx", onnx
    if importlib.util.find_spec("robot_rl_runtime") is None:
        return
    from robot_rl.sim2sim.binary import load_runtime

    network = load_runtime().open_network(str(folder), name="onnxruntime")

    def binary(obs: Array, state: Array) -> tuple[Array, Array]:
        if not state.shape[1]:
            return network.actions(obs), state
        rows = [network.run(*row) for row in zip(obs, state, strict=True)]
        return np.stack([row[0] for row in rows]), np.stack([row[2] for row in rows])

    yield "binary", binary


def actions_of(trace: Tracer, run: Run, size: int) -> Tensor:
    """Return the actions (T N, A) along the way of a network with a state of so many components."""
    state, found = np.zeros((len(trace.obs[0]), size), np.float32), []
    for obs, begins in zip(trace.obs, trace.begins, strict=False):
        action, state = run(obs.numpy(), np.where(begins.numpy()[:, None], np.float32(0), state))
        found.append(torch.from_numpy(action))
    return torch.cat(found)


def shift(distribution: Any, params: tuple[Tensor, ...], difference: Tensor) -> tuple[Tensor, ...]:
    """Return a Gaussian's parameters with its mean moved so that actions differ by `difference`, to first order."""
    mean, *rest = params
    bound = getattr(distribution, "bound", None)
    if bound is not None:  # The action is bound tanh(mean), with the slope bound (1 - tanh^2).
        difference = difference / (bound * (1.0 - torch.tanh(mean).square())).clamp(min=1e-6)
    return (mean + difference, *rest)


def layer_rows(network: Any) -> list[dict[str, Any]]:
    """Return a row for each layer of a network: its name, shape, formats, step, and what computes it."""
    rows = []
    for layer in layers_of(network):
        stepped = next((each for each in (layer.format, layer.acting) if each.has_step), None)
        row = {"layer": layer.name, "weight": " x ".join(map(str, layer.shape)), "precision": layer.format.name}
        row |= {"in rollouts": layer.acting.name}
        row["step of inputs"] = "-" if stepped is None else f"{float(layer.step_of(stepped)):.4g}"
        row["computed by"] = "; ".join(dict.fromkeys(describe(each, "cpu") for each in (layer.format, layer.acting)))
        rows.append(row)
    return rows


def show(title: str, rows: Sequence[Mapping[str, Any]]) -> None:
    """Print a table of text under its title."""
    print(f"\n{title}")
    head = tuple(rows[0])
    print_table(head, [tuple(row.values()) for row in rows], right=range(1, len(head)), least=120)


def results(rows: Sequence[Mapping[str, Any]], row: Mapping[str, Any], columns: Mapping[str, Any]) -> dict[str, str]:
    """Return return, `columns` and, where a row has it, the metric of a row, as text."""
    metric = next((each["metric"] for each in rows if "metric" in each), "")
    cells = {"return": pair(row["return"]), **columns}
    if metric:
        cells |= {metric: pair(row.get("tracking")), "worse by": f"{row['gap']:+.4f}" if "gap" in row else "-"}
    return cells


def pair(value: Mapping[str, float] | None) -> str:
    """Return mean and deviation as text."""
    return "-" if value is None else f"{value['mean']:.4g} ± {value['std']:.2g}"


def show_flows(rows: Sequence[Mapping[str, Any]]) -> None:
    """Print the table of flows."""
    shown = {key: name for key, name in COLUMNS.items() if any(key in row for row in rows)}
    cells = []
    for row in rows:
        figures = {name: f"{row[key]:.1e}" if key in row else "-" for key, name in shown.items()}
        cells.append({"flow": row["name"], **figures, **results(rows, row, {})})
    title = (
        "the same weights in other flows: how far rollouts are from the update (E|log ratio|), the robot's policy from "
        "the one that learns (KL, actions), and what the robot's returns"
    )
    show(title, cells)


def show_sensitivity(rows: Sequence[Mapping[str, Any]]) -> None:
    """Print the table of what each layer costs, the most expensive first."""
    each = sorted(rows[:-1], key=lambda row: row["cost"], reverse=True)
    cells = []
    for row in (*each, rows[-1]):
        figures = {"costs": f"{row['cost']:+.3g}", "actions differ by": f"{row['action']:.1e}"}
        cells.append({"layer": row["layer"], **results(rows, row, figures)})
    kept = f"precision.keep=[{each[0]['layer']}] keeps the first"
    show(f"one layer in {rows[0]['mode']}, the others in fp32; {kept}", cells)


def main(arguments: list[str]) -> int:
    """Compare a run's policy with itself, print the tables and write the figures."""
    words = read_words(arguments, KNOWN, whole=("episodes", "seconds"))
    mode = words["sensitivity"]
    if mode not in ("", *PRECISIONS[1:]):
        raise UserError(f"sensitivity={mode}: must be one of {', '.join(PRECISIONS[1:])}")
    source = find_policy(words["run"], "", words["root"])
    mismatch = Mismatch(source, episodes=int(words["episodes"]), seconds=int(words["seconds"]))
    found: dict[str, Any] = {"name": f"precisions of {source.name}", "mode": mismatch.own.mode}
    found |= {"machine": machine_facts(), "versions": package_versions()}
    if mismatch.own.is_quantized:
        found["layers"] = layer_rows(mismatch.actor)
        show("precision of each layer", found["layers"])
    found["flows"] = mismatch.compare()
    show_flows(found["flows"])
    if mode:
        found["sensitivity"] = mismatch.sensitivity(mode)
        show_sensitivity(found["sensitivity"])
    if words["out"]:
        write_json(Path(words["out"]), found)
    return 0


if __name__ == "__main__":
    run_script(main)
