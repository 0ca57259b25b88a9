"""The network of a bundle as the robot's binary runs it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from robot_rl.sim2sim.binary import load_runtime

Array = NDArray[np.float32]


def open_binary(bundle: Path) -> Callable[[Array, Array], tuple[Array, Array]]:
    """Return the binary's network: observations (N, D) and a state (N, S) in, actions (N, A) and the next state out.

    Raises:
        UserError: The runtime is not installed.
    """
    runtime = load_runtime()
    network = runtime.open_network(str(bundle), name="onnxruntime")

    def run(observations: Array, states: Array) -> tuple[Array, Array]:
        if not states.shape[1]:
            return network.actions(np.ascontiguousarray(observations, np.float32)), states
        rows = [network.run(obs, state) for obs, state in zip(observations, states, strict=True)]
        return np.stack([row[0] for row in rows]), np.stack([row[2] for row in rows])

    return run
