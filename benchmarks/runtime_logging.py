"""Cost of the robot's log in the real-time threads: nanoseconds per tick, compared with a tick of 2 ms.

python benchmarks/runtime_logging.py [ticks=20000] [out=benchmarks/runtime_logging.json]

A state and a command a tick, a policy's step in every tenth, pushed to a ring while the logger writes the file. The
runtime must be built (make runtime).
"""

import json
import tempfile
from pathlib import Path

import numpy as np
from harness import facts, write
from words import read_words, run_script

TICK_NS = 2_000_000
POLICY = Path(__file__).parents[1] / "tasks/robot_rl_tasks/go2_flat/policy"


def measure(ticks: int = 20_000) -> dict[str, object]:
    """Time so many ticks at 500 Hz."""
    import robot_rl_runtime as rt

    with tempfile.TemporaryDirectory() as folder:
        bundle = rt.read_bundle(POLICY)  # pyright: ignore[reportAttributeAccessIssue]
        cost = np.array(rt.time_logging(bundle, Path(folder) / "x.mcap", ticks, TICK_NS))  # pyright: ignore
        size = (Path(folder) / "x.mcap").stat().st_size
    shares = {"p50": 0.5, "p99": 0.99, "p99.9": 0.999, "most": 1.0}
    figures = {name: float(np.quantile(cost, share)) for name, share in shares.items()}
    return facts("runtime_logging") | {
        "ticks": ticks,
        "ns_a_tick": {**figures, "mean": float(cost.mean())},
        "share_of_a_tick": {name: value / TICK_NS for name, value in {**figures, "mean": float(cost.mean())}.items()},
        "log_bytes_a_second": round(size / (ticks * TICK_NS * 1e-9)),
    }


def main(arguments: list[str]) -> None:
    """Measure, print, write."""
    options = read_words(arguments, {"ticks": "20000", "out": ""}, whole=("ticks",), marks=("machine", "ns_a_tick"))
    result = measure(int(options["ticks"]))
    print(json.dumps(result, indent=1))
    write(options["out"], result)


if __name__ == "__main__":
    run_script(main)
