"""The rival's side of env_mjlab.py: run by the rival's own Python, knows nothing of robot_rl.

Reads one JSON object a line from stdin and answers each with one on stdout; what the rival prints goes to stderr.

- ``{"do": "make", "name": str, "num_envs": int, "sim": {...}, "seed": int, "device": str}``: builds an environment with
  the fields of ``sim`` set on its simulation settings (``mujoco.cone``, ``njmax``, ...), resets it and answers its
  settings.
- ``{"do": "block", "name": str, "steps": int}``: steps it under random actions; answers ``seconds``.
- ``{"do": "contacts", "name": str}``: answers the contacts and constraint rows of a world, as means.
- ``{"do": "drop", "name": str}``: forgets it. End of file ends the process.
"""

from __future__ import annotations

import gc
import json
import os
import sys
import time
from importlib import metadata
from typing import Any, TextIO

TASK = "Mjlab-Velocity-Flat-Unitree-Go1"


def _set(target: Any, sim: dict[str, Any]) -> None:
    for path, value in sim.items():
        node = target
        *parents, last = path.split(".")
        for part in parents:
            node = getattr(node, part)
        if not hasattr(node, last):
            raise AttributeError(f"{path}: not a setting of the simulation")
        setattr(node, last, value)


def make(num_envs: int, sim: dict[str, Any], seed: int, device: str) -> tuple[Any, dict[str, Any]]:
    """Build the rival's flat quadruped task; return it with the settings its physics runs under."""
    import mjlab.tasks  # noqa: F401  # type: ignore[import-not-found]  # registers the tasks
    from mjlab.envs import ManagerBasedRlEnv  # type: ignore[import-not-found]
    from mjlab.tasks.registry import load_env_cfg  # type: ignore[import-not-found]

    cfg = load_env_cfg(TASK)
    cfg.scene.num_envs, cfg.seed = num_envs, seed
    _set(cfg.sim, sim)
    env = ManagerBasedRlEnv(cfg=cfg, device=device)
    env.reset()
    return env, {"num_envs": num_envs, **_settings(env)}


def _settings(env: Any) -> dict[str, Any]:
    import mujoco
    import torch

    opt, model = env.sim.mj_model.opt, env.sim.mj_model
    sparse = "sparse" if env.sim.wp_model.is_sparse else "dense"
    feet = model.geom_condim[(model.geom_contype | model.geom_conaffinity) != 0]
    return {
        "robot": "Unitree Go1",
        "timestep_s": opt.timestep,
        "decimation": env.cfg.decimation,
        "integrator": mujoco.mjtIntegrator(opt.integrator).name.removeprefix("mjINT_").lower(),
        "solver": mujoco.mjtSolver(opt.solver).name.removeprefix("mjSOL_").lower(),
        "iterations": opt.iterations,
        "ls_iterations": opt.ls_iterations,
        "tolerance": opt.tolerance,
        "cone": mujoco.mjtCone(opt.cone).name.removeprefix("mjCONE_").lower(),
        "impratio": opt.impratio,
        "jacobian": sparse,
        "dofs": model.nv,
        "colliding_geoms": len(feet),
        "condim": f"{feet.min()} to {feet.max()}",
        "threads": f"torch {torch.get_num_threads()}, Warp 1",
        "versions": {name: metadata.version(name) for name in ("mjlab", "mujoco-warp", "warp-lang", "torch")},
    }


def block(env: Any, steps: int, generator: Any) -> float:
    """Step under random actions; the draws are not timed [s]."""
    import torch

    width = env.action_manager.total_action_dim
    actions = (0.5 * torch.randn((steps, env.num_envs, width), generator=generator)).to(env.device)
    wait = torch.cuda.synchronize if actions.is_cuda else lambda: None
    wait()
    start = time.perf_counter()
    with torch.inference_mode():
        for action in actions:
            env.step(action)
    wait()
    return time.perf_counter() - start


def contacts(env: Any) -> dict[str, float]:
    """Contacts and constraint rows of a world, means over the worlds as they are now."""
    data = env.sim.wp_data
    return {
        "contacts_per_world": round(float(data.nacon.numpy()[0]) / env.num_envs, 2),
        "constraints_per_world": round(float(data.nefc.numpy().mean()), 2),
    }


def serve(requests: TextIO, answers: TextIO) -> None:
    """Answer requests until they end."""
    import torch

    envs: dict[str, Any] = {}
    generator = torch.Generator().manual_seed(0)
    for line in requests:
        request = json.loads(line)
        name = request["name"]
        try:
            if request["do"] == "make":
                envs[name], answer = make(*(request[key] for key in ("num_envs", "sim", "seed", "device")))
            elif request["do"] == "block":
                answer = {"seconds": block(envs[name], request["steps"], generator)}
            elif request["do"] == "contacts":
                answer = contacts(envs[name])
            else:
                envs.pop(name).close()
                gc.collect()
                answer = {}
        except Exception as error:
            answer = {"error": f"{type(error).__name__}: {error}"}
        answers.write(json.dumps(answer) + "\n")
        answers.flush()


def main() -> None:
    """Keep stdout for answers only: what libraries print there goes to stderr."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    serve(sys.stdin, answers)


if __name__ == "__main__":
    main()
