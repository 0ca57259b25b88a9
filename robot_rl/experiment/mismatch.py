"""How far the policy that learns, the one that acts, and the one on the robot are from each other, by precision.

A policy is up to three: in the update, in the rollouts, and as the robot runs it. In one precision throughout they are
the same. In two flows that are common they are not: rollouts in int8 or e4m3 with an update in bfloat16, where the
training is off-policy without anything that corrects it (Jet-RL, arXiv 2601.14243), and a training in float32 with
quantization after it. Each flow is measured on the same weights and the same states.
"""

from __future__ import annotations

import contextlib
import dataclasses
import importlib.util
import math
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from robot_rl.errors import UserError
from robot_rl.evaluate import evaluation_task
from robot_rl.evaluate.controllers import TorchController
from robot_rl.evaluate.meter import summarize
from robot_rl.evaluate.rollout import SECONDS, measure
from robot_rl.experiment.mismatch_tables import flow_table, layer_table, sensitivity_table
from robot_rl.learn.policy import Policy
from robot_rl.learn.precision.conversion import in_precision, layers_of
from robot_rl.settings.precision import PrecisionCfg

TRACE_S = 5.0
"""How long a policy is simulated to fit the grids of quantization after training [s]."""
TRACED = 32
"""Worlds of which the observations are kept to compare policies on."""


Run = Callable[[np.ndarray, np.ndarray], tuple[np.ndarray, np.ndarray]]
"""Takes observations (N, D) and a state (N, S), and returns actions (N, A) and the state after them."""


@dataclass(frozen=True, slots=True)
class Flow:
    """The precisions of one way from training to the robot.

    Attributes:
        name: what is done.
        update: where the policy learns.
        rollout: where it acts in training.
        robot: where it acts on the robot.
    """

    name: str
    update: str
    rollout: str
    robot: str


def flows(own: PrecisionCfg) -> list[Flow]:
    """Return the flow of a run first, then those that it is compared with."""
    acting = own.rollout or own.mode
    name = f"{own.mode} throughout" if acting == own.mode else f"update {own.mode}, rollouts {acting}"
    found = [Flow(name, own.mode, acting, own.mode)]
    found += [Flow(f"update bf16, rollouts {mode}", "bf16", mode, mode) for mode in ("int8", "fp8")]
    found += [Flow(f"fp32, {mode} after training", "fp32", "fp32", mode) for mode in ("int8", "fp8")]
    return list({(flow.update, flow.rollout, flow.robot): flow for flow in reversed(found)}.values())[::-1]


@dataclass(slots=True)
class Trace:
    """What a policy saw in some worlds.

    Attributes:
        obs: (T, N, D) observations of the actor.
        begins: (T, N) bool, an episode begins.
    """

    obs: Tensor
    begins: Tensor

    def outputs(self, actor: Any) -> Tensor:
        """Return the outputs (T N, P) of a policy's network along the way, a recurrent one with its own memory."""
        if actor.memory is None:
            return actor.step(actor.encode(self.obs.flatten(0, 1)), None)[0]
        state, found = torch.zeros(self.obs.shape[1], actor.state_size), []
        for obs, begins in zip(self.obs, self.begins, strict=True):
            out, after = actor.step(actor.encode(obs), state.masked_fill(begins[:, None], 0.0))
            found.append(out)
            state = after
        return torch.cat(found)

    def actions(self, run: Run, size: int) -> Tensor:
        """Return the actions (T N, A) along the way of a network with a state of so many components."""
        if not size:
            obs = self.obs.flatten(0, 1).numpy()
            return torch.from_numpy(run(obs, np.zeros((len(obs), 0), np.float32))[0])
        state, found = np.zeros((self.obs.shape[1], size), np.float32), []
        for obs, begins in zip(self.obs.numpy(), self.begins.numpy(), strict=True):
            action, state = run(obs, np.where(begins[:, None], np.float32(0), state))
            found.append(torch.from_numpy(action))
        return torch.cat(found)


class Tracer(TorchController):
    """A policy on the CPU that keeps what it sees in the first worlds, wherever these are."""

    def __init__(self, policy: Policy) -> None:
        super().__init__(policy)
        self._layout, self._obs, self._begins = policy.actor.layout, [], []
        self._begun: Tensor | None = None

    def act(self, env: Any, obs: Any) -> Tensor:
        """Return actions (N, num_actions)."""
        own = obs[:TRACED].to("cpu")
        self._obs.append(self._layout.gather(own, torch.empty(own.batch_size[0], self._layout.size)))
        assert self._begun is not None
        self._begins.append(self._begun[:TRACED].cpu())
        self._begun = torch.zeros_like(self._begun)
        return super().act(env, obs.to("cpu")).to(env.device)

    def reset(self, done: Tensor) -> None:
        """Note where an episode begins."""
        super().reset(done)
        self._begun = done.clone() if self._begun is None else self._begun | done

    def trace(self) -> Trace:
        """Return what was seen."""
        return Trace(torch.stack(self._obs), torch.stack(self._begins))


def record_trace(cfg: Any, policy: Policy, seed: int) -> Trace:
    """Return what a run's policy sees in a few worlds, for some seconds."""
    worlds = dataclasses.replace(cfg.worlds(), num_envs=TRACED, seed=seed)
    tracer = Tracer(policy)
    with contextlib.closing(cfg.source.make_env(cfg.task, worlds)) as env:
        measure(env, tracer, seconds=TRACE_S)
    return tracer.trace()


def no_precision(cfg: Any) -> str:
    """Return why the policy of a run with these settings has no other precision; empty if it has."""
    learner = cfg.learner
    if cfg.source.name != "robot-rl":
        return f"task={cfg.reference}: precisions are compared of robot-rl's own tasks; leave that out"
    if not learner.quantizes or getattr(cfg.task, "robots", None):
        which = f"learner={learner.name}" if not learner.quantizes else f"task={cfg.reference}: a team"
        return f"{which}: its policy has no other precision; leave that out"
    return ""


class Mismatch:
    """Compares a run's policy with itself in other precisions.

    Attributes:
        own: the run's precision.
        metric: the task's own figure that is compared, such as a tracking error; "" where it has none.
    """

    def __init__(self, source: Any, how: Any) -> None:
        """Take the `PolicySource` of a run and an `EvaluationCfg`; raise UserError with the line of `no_precision`."""
        cfg = source.cfg
        if line := no_precision(cfg):
            raise UserError(line)
        self._cfg, self._task = cfg, evaluation_task(cfg.task)
        self._worlds = dataclasses.replace(cfg.worlds(), num_envs=how.episodes, seed=how.seed)
        self._seconds = SECONDS if how.seconds is None else how.seconds
        self.own: PrecisionCfg = cfg.learner.precision
        self._policy: Policy = source.torch_policy("cpu")
        solved = getattr(cfg.task, "solved", None)
        self.metric = solved[0].removeprefix("tracking/") if solved else ""
        self._worse = -1.0 if self.metric and _is_score(cfg.task, self.metric) else 1.0
        self._trace: Trace | None = None
        self._policies: dict[tuple[Any, ...], Policy] = {}
        self._returns: dict[int, dict[str, Any]] = {}

    @property
    def actor(self) -> Any:
        """The run's policy."""
        return self._policy.actor

    def table(self, tell: Callable[[str], None] = lambda line: None) -> list[dict[str, Any]]:
        """Return a row for each flow; `tell` gets a line about each that begins."""
        rows, several = [], flows(self.own)
        self._traced()
        with tempfile.TemporaryDirectory(prefix="robot-rl-") as folder, torch.no_grad():
            modes = dict.fromkeys(flow.robot for flow in several)
            bundles = {mode: self._export(mode, Path(folder) / mode) for mode in modes}
            for flow in several:
                tell(flow.name)
                rows.append(self._row(flow, bundles[flow.robot]))
        return rows

    @torch.no_grad()
    def sensitivity(self, mode: str, tell: Callable[[str], None] = lambda line: None) -> list[dict[str, Any]]:
        """Return a row for each layer: what it costs to compute that one in `mode`, and all others in float32.

        The last row is that of all layers in `mode`.
        """
        trace, plain = self._traced(), self._simulate(self._variant("fp32"))
        names = [layer.name for layer in layers_of(self._variant(mode).actor)]
        before, rows = self._mean(trace.outputs(self._variant("fp32").actor)), []
        for chosen in (*names, "all"):
            tell(chosen)
            policy = self._variant(mode, [] if chosen == "all" else [name for name in names if name != chosen])
            found, after = self._simulate(policy), self._mean(trace.outputs(policy.actor))
            row = {"layer": chosen, "mode": mode, "return": found["return"]}
            row["cost"] = _mean_of(plain["return"]) - _mean_of(found["return"])
            row["action"] = float((after - before).abs().mean())
            rows.append(row | self._gap(found, plain))
        return rows

    def _traced(self) -> Trace:
        if self._trace is None:
            self._simulate(self._variant(self.own.mode))
        assert self._trace is not None
        return self._trace

    def _variant(self, mode: str, keep: Sequence[str] = ()) -> Policy:
        """Return the policy in another precision, its grids fitted to what the run's own policy saw."""
        if mode == self.own.mode and not keep:
            return self._policy
        key = (mode, tuple(keep))
        if key not in self._policies:
            cfg = PrecisionCfg(mode=mode, keep=tuple(keep)) if mode != "fp32" else PrecisionCfg()
            actor = in_precision(self._policy.actor, cfg, self._traced().outputs)
            self._policies[key] = Policy(actor.eval(), self._policy.meta, self._policy.path)
        return self._policies[key]

    def _simulate(self, policy: Policy) -> dict[str, Any]:
        """Return mean and deviation of return and metric over episodes of a policy, each simulated once."""
        key = id(policy)
        if key not in self._returns:
            tracer = Tracer(policy)
            with contextlib.closing(self._cfg.source.make_env(self._task, self._worlds)) as env:
                found = measure(env, tracer, seconds=self._seconds)
            if self._trace is None:
                self._trace = tracer.trace()
            names = [name for name in ("return", self.metric) if name in found]
            self._returns[key] = summarize({name: found[name] for name in names})
        return self._returns[key]

    def _export(self, mode: str, out: Path) -> Path | None:
        """Write the bundle of the policy in a precision; None where the task has no contract."""
        from robot_rl_deploy.contract import TrainingSpec

        cfg = self._cfg
        if not getattr(cfg.task, "deployable", False):
            return None
        training = TrainingSpec(run_id="mismatch", task=cfg.reference, git_commit="unknown", iteration=0)
        groups = tuple(cfg.learner.actor_groups)
        cfg.source.export(cfg.task, self._worlds, self._variant(mode).actor, groups=groups, out=out, training=training)
        return out

    def _row(self, flow: Flow, bundle: Path | None) -> dict[str, Any]:
        """Return the figures of a flow."""
        trace, learns = self._traced(), self._variant(flow.update)
        distribution = learns.actor.distribution
        out, acted = (trace.outputs(self._variant(mode).actor) for mode in (flow.update, flow.rollout))
        params, old = distribution.params(out), distribution.params(acted)
        noise = torch.empty(len(out), learns.actor.action_dim)
        distribution.draw_noise(noise, torch.Generator().manual_seed(0))
        action = distribution.sample(old, noise)
        ratio = (distribution.log_prob(action, params) - distribution.log_prob(action, old)).abs()
        robot, found = self._simulate(self._variant(flow.robot)), self._simulate(learns)
        row: dict[str, Any] = dataclasses.asdict(flow) | {"log_ratio": float(ratio.mean()), "return": robot["return"]}
        row |= self._gap(robot, found)
        for name, run in _runners(bundle):
            given = trace.actions(run, learns.actor.state_size)
            difference = given - _clipped(distribution.mode(params), bundle)
            size, shifted = difference.abs(), _shift(distribution, params, difference)
            row |= {f"action_{name}": float(size.mean()), f"action_{name}_max": float(size.max())}
            row[f"kl_{name}"] = float(distribution.kl(params, shifted).mean())
        return row

    def _gap(self, found: Mapping[str, Any], other: Mapping[str, Any]) -> dict[str, Any]:
        """Return the metric of an evaluation, and how much worse it is than that of another one."""
        if not self.metric or found.get(self.metric) is None or other.get(self.metric) is None:
            return {}
        mine, theirs = found[self.metric], other[self.metric]
        return {"metric": self.metric, "tracking": mine, "gap": self._worse * (mine["mean"] - theirs["mean"])}

    def _mean(self, out: Tensor) -> Tensor:
        distribution = self._policy.actor.distribution
        return distribution.mode(distribution.params(out))


def _clipped(action: Tensor, bundle: Path | None) -> Tensor:
    """Return actions as a bundle bounds them."""
    from robot_rl_deploy.bundle import read_bundle

    assert bundle is not None
    specs = read_bundle(bundle).contract.actions
    bound = torch.tensor([math.inf if each.clip is None else each.clip for each in specs])
    return torch.minimum(torch.maximum(action, -bound), bound)


def _shift(distribution: Any, params: tuple[Tensor, ...], difference: Tensor) -> tuple[Tensor, ...]:
    """Return a Gaussian's parameters with its mean moved so that actions differ by `difference`, to first order."""
    mean, *rest = params
    bound = getattr(distribution, "bound", None)
    if bound is not None:  # The action is bound tanh(mean), with the slope bound (1 - tanh^2).
        difference = difference / (bound * (1.0 - torch.tanh(mean).square())).clamp(min=1e-6)
    return (mean + difference, *rest)


def _runners(bundle: Path | None) -> Iterator[tuple[str, Run]]:
    """Yield what runs a bundle's network: "onnx", and "binary" where the robot's runtime is installed."""
    if bundle is None:
        return
    from robot_rl_deploy.bundle import read_bundle
    from robot_rl_deploy.policy import open_session

    session = open_session(read_bundle(bundle))[0]

    def onnx(obs: np.ndarray, state: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        action, _, after = session.run(obs, state)
        return action, after

    yield "onnx", onnx
    if importlib.util.find_spec("robot_rl_runtime") is not None:
        from robot_rl.sim2sim.network import open_binary

        yield "binary", open_binary(bundle)


def _is_score(task: Any, metric: str) -> bool:
    """Whether larger values of a task's metric are better."""
    term = getattr(task, "metrics", {}).get(metric)
    return term is not None and term.info.better == "larger"


def _mean_of(summary: Mapping[str, float] | None) -> float:
    return math.nan if summary is None else summary["mean"]


def compare_precisions(
    source: Any, how: Any, *, flows: bool, sensitivity: str, tell: Callable[[str], None] = lambda line: None
) -> dict[str, Any]:
    """Return the figures of a run's policy in other precisions, and tables of them as text.

    Args:
        source: The `robot_rl.experiment.policies.PolicySource` of a run.
        how: An `EvaluationCfg`.
        flows: Compare flows from training to the robot.
        sensitivity: The precision of which the cost is measured for each layer; empty: of none.
        tell: Gets a line about each part that begins.

    Raises:
        UserError: The policy has no other precision.
    """
    mismatch = Mismatch(source, how)
    found: dict[str, Any] = {"mode": mismatch.own.mode, "tables": []}
    if mismatch.own.is_quantized:
        found["tables"].append(layer_table(mismatch.actor))
    if flows:
        found["flows"] = mismatch.table(tell)
        found["tables"].append(flow_table(found["flows"]))
    if sensitivity:
        found["sensitivity"] = mismatch.sensitivity(sensitivity, tell)
        found["tables"].append(sensitivity_table(found["sensitivity"]))
    return found
