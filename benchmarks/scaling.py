"""What several processes cost: the exchange of gradients measured at two ranks, and a model of it for more.

    python benchmarks/scaling.py [task=go2_flat] [num_envs=512] [iterations=20] [out=benchmarks/scaling.json]

Measured, each process with one thread on a core of its own: an iteration of one rank with num_envs worlds, an iteration
of two ranks with num_envs worlds each, and all-reduce between two ranks for messages of several sizes, which gives its
latency and its bandwidth. Computed: an iteration of P ranks with num_envs worlds each (weak scaling), as that of one
rank and, for each of its minibatches, a ring all-reduce of the gradient; and the same with the time that ranks wait for
the slowest one, as measured at two ranks and larger with more of them (docs/scaling.md).
"""

import itertools
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from harness import facts, write
from words import read_words, run_script

from robot_rl.runs.settings import default_tree, resolve

KNOWN = {"task": "go2_flat", "num_envs": "512", "iterations": "20", "out": "benchmarks/scaling.json"}
SIZES = (1_024, 16_384, 65_536, 262_144)
"""Numbers of float32 in a message."""
ROUNDS = 60
NETWORKS = {
    "this machine's loopback": None,
    "10 Gbit/s Ethernet": (50e-6, 1.25e9 * 0.7),
    "100 Gbit/s with RDMA": (5e-6, 12.5e9 * 0.7),
    "NVLink 4": (3e-6, 450e9 * 0.7),
}
"""Latency of a message [s] and bandwidth [byte/s]; but for the first assumed, at 0.7 of what the link is sold as."""
LATEST = {2: 0.564, 8: 1.424, 64: 2.344}
"""By the number of ranks, how much later than the mean the slowest is, in standard deviations of a normal
distribution: the expected maximum of so many, n * integral of x pdf(x) cdf(x)^(n-1)."""


def train(root: Path, words: Sequence[str], name: str) -> list[dict[str, Any]]:
    """Train and return the rows of metrics, the first ones left out."""
    command = [sys.executable, "-m", "robot_rl.cli.main", "train", *words, f"root={root}", f"run_id={name}"]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    subprocess.run(command, check=True, env=environment, stdout=subprocess.DEVNULL)
    (file,) = root.glob(f"*/{name}/metrics.jsonl")
    return [json.loads(line) for line in file.read_text().splitlines()][3:]


def seconds(rows: Sequence[dict[str, Any]]) -> dict[str, float]:
    """Return the median of an iteration and of its parts [s]."""
    times = [row["time_s"] for row in rows]
    parts = {key: statistics.median(row[f"perf/{key}_s"] for row in rows) for key in ("simulate", "infer", "learn")}
    found = {"iteration": statistics.median(b - a for a, b in itertools.pairwise(times)), **parts}
    if "perf/exchange_s" in rows[0]:
        found["exchange"] = statistics.median(row["perf/exchange_s"] for row in rows)
    return found


def exchange(rank: int, size: int) -> None:
    """Time all-reduce in a process of two, and print it as JSON: seconds by the number of floats."""
    import torch
    import torch.distributed as dist

    torch.set_num_threads(1)
    dist.init_process_group("gloo", rank=rank, world_size=size)
    found = {}
    for count in SIZES:
        message, taken = torch.zeros(count), []
        for _ in range(ROUNDS):
            dist.barrier()
            start = time.perf_counter()
            dist.all_reduce(message)
            taken.append(time.perf_counter() - start)
        found[count] = statistics.median(taken)
    if rank == 0:
        print(json.dumps(found))
    dist.destroy_process_group()


def measure_exchange() -> dict[int, float]:
    """Return the seconds of an all-reduce between two processes, by the number of floats."""
    from robot_rl.sim2sim.link import free_ports

    (port,) = free_ports(1)
    surroundings = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "GLOO_SOCKET_IFNAME": "lo"}
    processes = [
        subprocess.Popen(
            [sys.executable, __file__, "exchange", str(rank)],
            env={**os.environ, **surroundings},
            stdout=subprocess.PIPE,
            text=True,
        )
        for rank in range(2)
    ]
    outputs = [process.communicate(timeout=120)[0] for process in processes]
    return {int(key): value for key, value in json.loads(outputs[0]).items()}


def fit(taken: dict[int, float]) -> tuple[float, float]:
    """Return latency [s] and bandwidth [byte/s] of a message: all-reduce between two ranks sends two, each of half.

    2 (P - 1) latency + 2 (P - 1) / P * bytes / bandwidth at P = 2, the smallest and the largest size.
    """
    small, large = min(taken), max(taken)
    per_byte = (taken[large] - taken[small]) / (4 * (large - small))
    return max(0.0, (taken[small] - 4 * small * per_byte) / 2), 1 / per_byte


def exchange_s(ranks: int, messages: int, size: int, link: tuple[float, float]) -> float:
    """Return the time of an iteration's ring all-reduces [s].

    Args:
        ranks: number of ranks.
        messages: gradients exchanged in an iteration.
        size: bytes of a gradient.
        link: latency [s] and bandwidth [byte/s].
    """
    latency, bandwidth = link
    return messages * (2 * (ranks - 1) * latency + 2 * (ranks - 1) / ranks * size / bandwidth)


def predict(one_s: float, waiting_s: float, messages: int, size: int, link: tuple[float, float]) -> dict[int, Any]:
    """Return for each number of ranks the time of the exchange [s], and the efficiency without and with waiting.

    `one_s` is an iteration of one rank [s], `waiting_s` how long two ranks wait in one for the slower [s]; the others
    are those of `exchange_s`.
    """
    found = {}
    for ranks, latest in LATEST.items():
        each = exchange_s(ranks, messages, size, link)
        late = waiting_s * latest / LATEST[2]
        found[ranks] = {
            "exchange_s": each,
            "exchange_share": each / (one_s + each),
            "efficiency": one_s / (one_s + each),
            "efficiency_with_waiting": one_s / (one_s + each + late),
        }
    return found


def main(arguments: list[str]) -> None:
    """Measure, print and write it down."""
    if arguments[:1] == ["exchange"]:
        exchange(int(arguments[1]), 2)
        return
    given = read_words(arguments, KNOWN, whole=("num_envs", "iterations"))
    envs = int(given["num_envs"])
    shared = [f"task={given['task']}", f"max_iterations={int(given['iterations']) + 3}", "num_threads=1", "device=cpu"]
    with tempfile.TemporaryDirectory(prefix=".scaling-", dir=".") as folder:
        root = Path(folder)
        one = seconds(train(root, [*shared, f"num_envs={envs}"], "one"))
        words = [*shared, f"num_envs={2 * envs}", "launcher=torchrun", "launcher.ranks=2"]
        two = seconds(train(root, words, "two"))
        model = next(root.glob("*/one/checkpoints/*/model.safetensors"))
        floats = gradient(model)
    taken = measure_exchange()
    learner: Any = resolve(default_tree(given["task"], "cpu")).learner
    messages = learner.ppo.epochs * learner.ppo.minibatches
    loopback = fit(taken)
    links = {name: link or loopback for name, link in NETWORKS.items()}
    waiting = max(0.0, two["iteration"] - one["iteration"] - exchange_s(2, messages, 4 * floats, loopback))
    result = facts("scaling") | {
        "settings": given,
        "load": os.getloadavg()[0],
        "measured": {
            "one_rank_s": one,
            "two_ranks_s": two,
            "weak_scaling_of_two": one["iteration"] / two["iteration"],
            "exchange_share_of_two": two["exchange"] / two["iteration"],
            "waiting_of_two_s": waiting,
            "all_reduce_s": taken,
            "gradient_floats": floats,
            "gradients_an_iteration": messages,
        },
        "computed": {
            name: {"latency_s": link[0], "bandwidth": link[1]}
            | predict(one["iteration"], waiting, messages, 4 * floats, link)
            for name, link in links.items()
        },
    }
    print(json.dumps({key: result[key] for key in ("measured", "computed")}, indent=1, default=str))
    write(given["out"], result)


def gradient(model: Path) -> int:
    """Return the number of parameters that a checkpoint's optimizer has moments of."""
    from safetensors import safe_open

    with safe_open(model, "pt") as file:
        names = [name for name in file.keys() if "exp_avg" in name and "exp_avg_sq" not in name]  # noqa: SIM118
        return sum(file.get_tensor(name).numel() for name in names)


if __name__ == "__main__":
    run_script(main)
