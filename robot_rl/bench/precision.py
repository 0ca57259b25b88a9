"""``robot-rl bench precision``: rollouts, updates and inference in less than float32, each against float32 in turn."""

from __future__ import annotations

import contextlib
import multiprocessing
import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch

from robot_rl.bench.result import seconds
from robot_rl.learn.algorithms.ppo.config import PPOLearnerCfg
from robot_rl.learn.algorithms.ppo.ppo import PPO, make_networks
from robot_rl.learn.dims import Dims
from robot_rl.learn.graphs import CudaRecorder
from robot_rl.learn.precision.formats import get_format
from robot_rl.learn.precision.kernels import describe
from robot_rl.learn.rollout import Rollout, make_rollout
from robot_rl.machine import machine_facts, package_versions
from robot_rl.settings import NetworkCfg, PrecisionCfg
from robot_rl.sim2sim.binary import load_runtime

DIMS = Dims(actor=48, critic=64, action=12)
"""Sizes of a quadruped's observations and actions."""
ACTING = 4096
"""Worlds that act at once."""
ACTS = 8
"""Times that a policy acts in one measurement."""
ROBOT = (98, (512, 512, 512), 29)
"""Observations, hidden layers and actions of the network that the binary runs: a humanoid's."""
REQUIRED = {"update": 1.4, "acting": 1.3}
"""Speed in bf16 over fp32 that we ask of ourselves on a CPU with bf16 instructions."""


class Trainee:
    """PPO in a precision, with a rollout to learn from."""

    def __init__(self, mode: str, hidden: tuple[int, ...], num_envs: int, num_steps: int, device: str) -> None:
        network = {"hidden": hidden}
        self.cfg = PPOLearnerCfg(
            num_steps=num_steps,
            actor=NetworkCfg(**network),  # type: ignore[arg-type]
            critic=NetworkCfg(output_gain=1.0, **network),  # type: ignore[arg-type]
            precision=PrecisionCfg(mode=mode),
        )
        generator = torch.Generator().manual_seed(0)
        actor, critic = make_networks(self.cfg, DIMS, None, generator)
        actor, critic = actor.to(device), critic.to(device)
        self.ppo = PPO(actor, critic, self.cfg.ppo, generator=torch.Generator(device).manual_seed(0))
        self.rollout = make_rollout(num_steps, num_envs, DIMS, device)
        self._fill(self.rollout, device)
        self._obs = torch.randn(ACTING, DIMS.actor, device=device)
        self._noise = torch.randn(ACTING, DIMS.action, device=device)
        self._replay: Callable[[], None] | None = None

    @torch.no_grad()
    def _fill(self, rollout: Rollout, device: str) -> None:
        """Let the policy act at random observations."""
        random = torch.Generator(device).manual_seed(1)
        for tensor in (rollout.actor_obs, rollout.critic_obs, rollout.final_obs, rollout.noise, rollout.reward):
            tensor.normal_(generator=random)
        policy = self.ppo.snapshot(0)
        policy.begin(rollout, random)
        for t in range(rollout.reward.shape[0]):
            policy.act(rollout, t, None)
        policy.record(rollout)

    def update(self) -> None:
        """Learn once from the rollout."""
        self.ppo.update(self.rollout, 0.0)

    def act(self) -> None:
        """Act `ACTS` times in `ACTING` worlds, as in a rollout one after the other: on a GPU by a graph."""
        if self._replay is None:
            self._act()
            self._replay = self._act
            if self._obs.is_cuda:
                recorder = CudaRecorder(self._obs.device)
                recorder.run(self._act)
                self._replay = recorder.record(self._act)
        self._replay()

    @torch.no_grad()
    def _act(self) -> None:
        for _ in range(ACTS):
            self.ppo.actor.act(self._obs, self._noise)


class Worker:
    """A process of its own with PPO in a precision, as a training has one: two in a process disturb each other."""

    def __init__(self, mode: str, hidden: tuple[int, ...], num_envs: int, num_steps: int, device: str) -> None:
        context = multiprocessing.get_context("spawn")
        self._link, other = context.Pipe()
        options = {"hidden": hidden, "num_envs": num_envs, "num_steps": num_steps, "device": device}
        given = (other, mode, options, torch.get_num_threads())
        self._process = context.Process(target=_serve, args=given, daemon=True)

    def __enter__(self) -> Worker:
        """Start it."""
        self._process.start()
        return self

    def __exit__(self, *_: object) -> None:
        """End it."""
        self._process.kill()
        self._process.join()

    def measure(self, what: str) -> float:
        """Return how long an "update" or an "act" takes [s]."""
        self._link.send(what)
        return self._link.recv()


def _serve(link: Any, mode: str, options: dict[str, Any], threads: int) -> None:
    """Measure what the other end asks for, until it is gone."""
    torch.set_num_threads(threads)
    trainee, device = Trainee(mode, **options), options["device"]
    with contextlib.suppress(EOFError):
        while True:
            what = link.recv()
            if what == "act":
                trainee.act()
                link.send(seconds(trainee.act, device) / ACTS)
            else:
                link.send(seconds(trainee.update, device))


def bench_precision(
    modes: Sequence[str],
    hidden: tuple[int, ...],
    *,
    num_envs: int = 1024,
    num_steps: int = 24,
    device: str = "cpu",
    repeats: int = 7,
    runtime: bool = True,
) -> dict[str, Any]:
    """Measure updates, acting and, with the robot's runtime, inference in several precisions, in turn.

    Args:
        modes: The precisions; fp32 is always the first.
        hidden: Hidden layers of actor and critic.
        num_envs: Worlds of the rollout.
        num_steps: Its steps.
        device: Where networks learn and act.
        repeats: Rounds.
        runtime: Measure the binary's inference, too, where its runtime is installed.

    Returns:
        {"name", "machine", "versions", "rows", "notes"}; a row is {"what", "mode", "value" (median), "unit", "spread"
        (quartile distance), "ratio" (median over rounds of fp32's time by this one's), "required", "computed"}.
    """
    several = ("fp32", *(mode for mode in modes if mode != "fp32"))
    rows = []
    with contextlib.ExitStack() as stack:
        workers = {}
        for mode in several:
            workers[mode] = stack.enter_context(Worker(mode, hidden, num_envs, num_steps, device))
        for what, count in (("update", repeats), ("act", 2 * repeats)):
            times: dict[str, list[float]] = {mode: [] for mode in several}
            for k in range(count + 1):  # The first round is left out.
                for mode, worker in workers.items():
                    taken = worker.measure(what)
                    times[mode] += [taken] if k else []
            rows += _rows({"act": "acting"}.get(what, what), times, "ms", 1e3, device)
    notes: dict[str, Any] = {"hidden": list(hidden), "num_envs": num_envs, "num_steps": num_steps, "device": device}
    notes["acting"] = ACTING
    if runtime:
        rows += _robot_rows(several, repeats)
        notes["robot"] = list(ROBOT)
    versions = package_versions()
    return {"name": "precision", "machine": machine_facts(), "versions": versions, "rows": rows, "notes": notes}


def _rows(what: str, times: dict[str, list[float]], unit: str, scale: float, device: str) -> list[dict[str, Any]]:
    """Return a row for each precision."""
    rows = []
    for mode, values in times.items():
        quartiles = statistics.quantiles(values, n=4) if len(values) > 1 else [values[0]] * 3
        rows.append(
            {
                "what": what,
                "mode": mode,
                "value": statistics.median(values) * scale,
                "unit": unit,
                "spread": (quartiles[2] - quartiles[0]) * scale,
                "ratio": statistics.median(a / b for a, b in zip(times["fp32"], values, strict=True)),
                "required": REQUIRED.get(what) if mode == "bf16" else None,
                "computed": describe(get_format(mode), device.partition(":")[0]),
            }
        )
    return rows


def _robot_rows(modes: Sequence[str], repeats: int) -> list[dict[str, Any]]:
    """Return the median latencies of the binary's network in each precision, and the sizes of its file."""
    runtime = load_runtime()
    rows, networks, sizes = [], {}, {}
    with tempfile.TemporaryDirectory(prefix="robot-rl-") as folder:
        for mode in modes:
            bundle = _write_bundle(mode, Path(folder) / mode)
            sizes[mode] = (bundle / "policy.onnx").stat().st_size
            networks[mode] = runtime.open_network(str(bundle), name="onnxruntime")
            networks[mode].warm()
        times: dict[str, list[float]] = {mode: [] for mode in modes}
        observation = torch.randn(ROBOT[0]).numpy()
        for _ in range(repeats):
            for mode, network in networks.items():
                times[mode].append(network.measure(observation, runs=1000)["p50_us"] * 1e-6)
                time.sleep(0.01)
    found = _rows("inference p50", times, "us", 1e6, "cpu")
    for row in found:
        row |= {"computed": networks[row["mode"]].identity, "bytes": sizes[row["mode"]]}
        row["required"] = 1.0 if row["mode"] == "int8" else None
        rows.append(row)
    return rows


def _write_bundle(mode: str, out: Path) -> Path:
    """Write the bundle of a network with weights that were never trained, for a synthetic robot."""
    from robot_rl_deploy.synthetic import write_synthetic_bundle

    from robot_rl.learn.networks.actor_critic import Actor
    from robot_rl.learn.precision.conversion import measure, quantize

    inputs, hidden, outputs = ROBOT
    generator = torch.Generator().manual_seed(0)
    actor = Actor(inputs, outputs, NetworkCfg(hidden=hidden), generator=generator)
    if mode != "fp32":
        quantize(actor, PrecisionCfg(mode=mode), "actor")
        seen = torch.randn(1024, inputs, generator=generator)
        with torch.no_grad():
            measure(actor, lambda: actor.mean(seen))
    write_synthetic_bundle(out, joints=outputs, actor=actor.eval())
    return out
