"""The PPO update with and without torch.compile: the measurement that led to leaving it out.

    python benchmarks/torch_compile.py [out=benchmarks/torch_compile.json] [repeats=7] [num_envs=1024]

Three updates of the same networks on the same rollout, in turn: ours as it is (perceptrons block by block, gradients
written out), ours with PyTorch's own layers, and those with the loss compiled by torch.compile. Needs a C++ compiler.
"""

from __future__ import annotations

import statistics
import time
from pathlib import Path
from typing import Any

import torch
from words import read_words, run_script

from robot_rl.bench.learner import SIZES, EqualPair
from robot_rl.bench.result import make_result
from robot_rl.files import write_json
from robot_rl.learn.algorithms.ppo.config import PPOLearnerCfg
from robot_rl.learn.networks.mlp import Mlp
from robot_rl.settings import NetworkCfg

KNOWN = {"out": "", "repeats": "7", "num_envs": "1024"}


def make(hidden: tuple[int, ...], worlds: int, kind: str) -> EqualPair:
    """Return a pair with the algorithm "fused", "plain" or "compiled"."""
    network: dict[str, Any] = {"hidden": hidden, "activation": "elu"}
    cfg = PPOLearnerCfg(num_steps=24, actor=NetworkCfg(**network), critic=NetworkCfg(**network, output_gain=1.0))
    pair = EqualPair(cfg, worlds)
    if kind != "fused":
        for body in (pair.ours.actor.body, pair.ours.critic.body):
            assert isinstance(body, Mlp)
            body.forward = body.plain  # type: ignore[method-assign]
    if kind == "compiled":
        pair.ours.loss = torch.compile(pair.ours.loss, dynamic=False)  # type: ignore[method-assign]
    return pair


def main(arguments: list[str]) -> None:
    """Run the updates in turn.

    Raises:
        UserError: an option that cannot be used.
    """
    options = read_words(arguments, KNOWN, whole=("repeats", "num_envs"))
    worlds, repeats = int(options["num_envs"]), int(options["repeats"])
    rows: dict[str, list[float]] = {}
    first: dict[str, float] = {}
    for hidden in SIZES:
        pairs = {kind: make(hidden, worlds, kind) for kind in ("fused", "plain", "compiled")}
        name = "-".join(map(str, hidden))
        for kind, pair in pairs.items():
            begin = time.perf_counter()
            pair.run_ours()
            first[f"{kind}, {name}"] = round(time.perf_counter() - begin, 2)
        for _ in range(repeats):
            for kind, pair in pairs.items():
                begin = time.perf_counter()
                pair.run_ours()
                rows.setdefault(f"{kind}, {name}", []).append(1.0 / (time.perf_counter() - begin))
    notes = {"first_update_s": first, "rollout": f"{worlds} x 24", "threads": torch.get_num_threads()}
    result = make_result("torch.compile", rows, unit="updates/s", notes=notes)
    for who, values in rows.items():
        print(f"{who:24s} {statistics.median(values):.3f} updates/s, the first took {first[who]:.1f} s")
    if options["out"]:
        write_json(Path(options["out"]), result)


if __name__ == "__main__":
    run_script(main)
