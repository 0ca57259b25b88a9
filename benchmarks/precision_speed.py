"""Updates, acting in 4096 worlds and the binary's inference in bf16, fp8 and int8, each against float32 in turn.

    python benchmarks/precision_speed.py out=benchmarks/bench_precision.json
    python benchmarks/precision_speed.py device=cuda hidden=[1024,1024,512] runtime=false

``--help`` lists the options. What trainings in less than float32 reach is measured by precision.py.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import statistics
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from harness import facts, in_turn, median_ratio, run_bench, seconds, spread
from words import run_script

from robot_rl.cli.options import MAX_COUNT, MAX_ENVS, option, parse_value
from robot_rl.cli.table import print_table
from robot_rl.errors import UserError
from robot_rl.learn.algorithms.ppo.config import PPOLearnerCfg
from robot_rl.learn.algorithms.ppo.ppo import PPO, make_networks
from robot_rl.learn.graphs import CudaRecorder
from robot_rl.learn.precision.formats import get_format
from robot_rl.learn.precision.kernels import describe
from robot_rl.learn.rollout import Rollout, make_rollout
from robot_rl.performance.learner import DIMS, networks
from robot_rl.runs.settings import resolve_device
from robot_rl.settings import NetworkCfg, PrecisionCfg, from_dict
from robot_rl.settings.checks import check_choice
from robot_rl.settings.precision import PRECISIONS
from robot_rl.sim2sim.binary import load_runtime

ACTING = 4096
"""Worlds that act at once."""
ACTS = 8
"""Times that a policy acts in one measurement."""
ROBOT = (98, (512, 512, 512), 29)
"""Observations, hidden layers and actions of the network that the binary runs: a humanoid's."""
REQUIRED = {"update": 1.4, "acting": 1.3}
"""Speed in bf16 over fp32 that we ask of ourselves on a CPU with bf16 instructions."""


@dataclass(kw_only=True, slots=True)
class Options:
    """Options of the script."""

    modes: str = option("bf16,fp8,int8", "precisions")
    hidden: str = option("[512,256,128]", "hidden layers of actor and critic")
    num_envs: int = option(1024, "worlds of the rollout", least=1, most=MAX_ENVS)
    num_steps: int = option(24, "steps of the rollout", least=1, most=100_000)
    device: str = option("cpu", "cpu, cuda or cuda:<index>")
    repeats: int = option(7, "timed rounds of all, at least 2 for a spread", least=2, most=MAX_COUNT)
    runtime: bool = option(True, "measure the robot's binary, too")
    out: str = option("", "file for the figures as JSON")


class Trainee:
    """PPO in a precision, with a rollout to learn from."""

    def __init__(self, mode: str, hidden: tuple[int, ...], num_envs: int, num_steps: int, device: str) -> None:
        self.cfg = PPOLearnerCfg(num_steps=num_steps, precision=PrecisionCfg(mode=mode), **networks(hidden))
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


def bench_precision(options: Options, dotted: dict[str, Any]) -> dict[str, Any]:
    """Measure updates, acting and, with the robot's runtime, inference in several precisions, in turn.

    Returns:
        {"name", "machine", "versions", "rows", "notes"}; a row is {"what", "mode", "value" (median), "unit", "spread"
        (quartile distance), "ratio" (median over rounds of fp32's time by this one's), "required", "computed"}.

    Raises:
        UserError: A precision is unknown, or there is only fp32.
    """
    modes = [mode.strip() for mode in options.modes.split(",")]
    for mode in modes:
        check_choice("modes", mode, PRECISIONS)
    if modes == ["fp32"]:
        raise UserError("modes=fp32: is what the others are compared with; give bf16, fp8 or int8")
    hidden = from_dict(NetworkCfg, {"hidden": parse_value(options.hidden, "hidden")}).hidden
    device, repeats = resolve_device(options.device), options.repeats
    several = ("fp32", *(mode for mode in modes if mode != "fp32"))
    rows = []
    with contextlib.ExitStack() as stack:
        make = (Worker(mode, hidden, options.num_envs, options.num_steps, device) for mode in several)
        workers = [stack.enter_context(worker) for worker in make]
        for what, name, count in (("update", "update", repeats), ("act", "acting", 2 * repeats)):
            times = in_turn(several, lambda what=what: (worker.measure(what) for worker in workers), count)
            rows += _rows(name, times, "ms", 1e3, device)
    notes: dict[str, Any] = {"hidden": list(hidden), "num_envs": options.num_envs, "num_steps": options.num_steps}
    notes |= {"device": device, "acting": ACTING}
    if options.runtime:
        rows += _robot_rows(several, repeats)
        notes["robot"] = list(ROBOT)
    return facts("precision") | {"rows": rows, "notes": notes}


def _rows(what: str, times: dict[str, list[float]], unit: str, scale: float, device: str) -> list[dict[str, Any]]:
    """Return a row for each precision."""
    return [
        {
            "what": what,
            "mode": mode,
            "value": statistics.median(values) * scale,
            "unit": unit,
            "spread": spread(values) * scale,
            "ratio": median_ratio(times["fp32"], values),
            "required": REQUIRED.get(what) if mode == "bf16" else None,
            "computed": describe(get_format(mode), device.partition(":")[0]),
        }
        for mode, values in times.items()
    ]


def _robot_rows(modes: Sequence[str], repeats: int) -> list[dict[str, Any]]:
    """Return the median latencies of the binary's network in each precision, and the sizes of its file."""
    runtime = load_runtime()
    networks, sizes = {}, {}
    with tempfile.TemporaryDirectory(prefix="robot-rl-") as folder:
        for mode in modes:
            bundle = _write_bundle(mode, Path(folder) / mode)
            sizes[mode] = (bundle / "policy.onnx").stat().st_size
            networks[mode] = runtime.open_network(str(bundle), name="onnxruntime")
            networks[mode].warm()
        observation = torch.randn(ROBOT[0]).numpy()

        def latency(network: Any) -> float:
            value = network.measure(observation, runs=1000)["p50_us"] * 1e-6
            time.sleep(0.01)
            return value

        times = in_turn(networks, lambda: map(latency, networks.values()), repeats, warm_up=0)
    rows = _rows("inference p50", times, "us", 1e6, "cpu")
    for row in rows:
        row |= {"computed": networks[row["mode"]].identity, "bytes": sizes[row["mode"]]}
        row["required"] = 1.0 if row["mode"] == "int8" else None
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


def show_precision(result: Mapping[str, Any]) -> None:
    """Print a row for each part and precision."""
    rows = []
    for row in result["rows"]:
        bound = "" if row["required"] is None else f"at least {row['required']:g}"
        size = f"{row['bytes'] / 1024:.0f} kB" if "bytes" in row else ""
        value = f"{row['value']:.4g} ± {row['spread']:.2g} {row['unit']}"
        rows.append((row["what"], row["mode"], value, f"{row['ratio']:.2f}", bound, size, row["computed"]))
    heads = ("", "precision", "median ± spread", "fp32 / this", "required", "file", "computed by")
    print_table(heads, rows, right=(2, 3), least=120)


def main(arguments: list[str]) -> None:
    """Measure, print the table, write the figures."""
    run_bench(arguments, Options, bench_precision, show_precision)


if __name__ == "__main__":
    run_script(main)
