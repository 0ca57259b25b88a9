"""One training of a rival in one Gymnasium environment: run by the rivals' own Python, knows nothing of robot_rl.

    python -I gymnasium_worker.py '{"env": "HalfCheetah-v5", "rival": "sb3", "seed": 1, "steps": 1000000, "threads": 0,
        "episodes": 20}'

Writes one JSON object a line to stdout: points of the curve while it trains, at its end ``{"run": {...}, "cpu_s": s}``
with the CPU time of the whole process, or ``{"error": "..."}``. What libraries print goes to stderr. It ends by itself
where nobody reads any more.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable
from importlib import metadata
from pathlib import Path
from typing import Any

if __name__ == "__main__":
    # Isolated mode leaves the program's own folder out of the path.
    sys.path.insert(0, str(Path(__file__).parent))

from episodes import EpisodeLog, evaluate  # type: ignore[import-not-found]

ROLLOUT = 2048
"""Control steps of a rollout of both rivals; a training is a whole number of them."""
PACKAGES = ("torch", "stable-baselines3", "gymnasium", "mujoco", "numpy")


def train_cleanrl(env_id: str, seed: int, log: EpisodeLog) -> Callable[[Any], Any]:
    """CleanRL's settings, our program."""
    from gymnasium_ppo import train  # type: ignore[import-not-found]

    return train(env_id, seed, log)


def train_sb3(env_id: str, seed: int, log: EpisodeLog) -> Callable[[Any], Any]:
    """stable-baselines3's PPO by default: MlpPolicy, only the seed and the CPU are set."""
    import gymnasium
    from stable_baselines3 import PPO  # type: ignore[import-not-found]
    from stable_baselines3.common.callbacks import BaseCallback  # type: ignore[import-not-found]

    class Episodes(BaseCallback):
        def _on_training_start(self) -> None:
            log.begin()

        def _on_step(self) -> bool:
            for info in self.locals["infos"]:
                if "episode" in info:
                    log.add(info["episode"]["r"], info["episode"]["l"])
            log.tick(self.num_timesteps)
            return True

    model = PPO("MlpPolicy", gymnasium.make(env_id), seed=seed, device="cpu")
    assert model.n_steps == ROLLOUT
    model.learn(total_timesteps=log.steps, callback=Episodes())
    return lambda obs: model.predict(obs, deterministic=True)[0]


RIVALS = {"cleanrl": train_cleanrl, "sb3": train_sb3}


def run(job: dict[str, Any], say: Callable[[dict[str, Any]], None]) -> dict[str, Any]:
    """Train and evaluate.

    Args:
        job: "env", "rival", "seed", "steps", "threads" of torch (0 leaves its default), "episodes" of the evaluation.
        say: called with the points of the curve.

    Returns:
        What :meth:`EpisodeLog.finish` returned, with "evaluation" (returns of the deterministic policy in Gymnasium's
        own environment), "threads" and "versions".
    """
    import torch

    if job["threads"]:
        torch.set_num_threads(job["threads"])
    log = EpisodeLog(job["steps"], ROLLOUT, say)
    act = RIVALS[job["rival"]](job["env"], job["seed"], log)
    result = log.finish()
    returns = evaluate(job["env"], act, episodes=job["episodes"], seed=job["seed"])
    versions = {name: metadata.version(name) for name in PACKAGES}
    return {
        **result,
        "evaluation": returns,
        "threads": torch.get_num_threads(),
        "versions": {"python": sys.version.split()[0], **versions},
    }


def main() -> None:
    """Keep stdout for answers only."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)

    def say(answer: dict[str, Any]) -> None:
        answers.write(json.dumps(answer) + "\n")
        answers.flush()

    try:
        result = run(json.loads(sys.argv[1]), say)
        say({"run": result, "cpu_s": time.process_time()})
    except BrokenPipeError:
        os._exit(1)
    except Exception as error:
        say({"error": f"{type(error).__name__}: {error}"})
        raise


if __name__ == "__main__":
    main()
