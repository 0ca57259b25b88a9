"""Gradients of a return by the first action, from several sources, for docs/newton_gradients.md.

    pip install newton==1.8.0      # without its extra `sim`, which needs an older MuJoCo
    robot-rl train task=cartpole learner=world_model num_envs=256 max_iterations=150 seed=1
    python benchmarks/newton_gradients.py run=runs/cartpole/RUN

From the same states, with the same random actions: the gradient of the sum of H rewards by the first action, backwards
through Newton, by central differences in Newton, by central differences in MuJoCo, and, of the cart-pole, backwards
through the learned world of a run. Compared are a row's gradient (of the ant eight numbers, of the cart-pole one, so
that all rows together are one vector): cosine and ratio of magnitudes.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import torch
from newton_world import TASKS, World
from torch import Tensor
from words import read_words

from robot_rl.files import write_atomic
from robot_rl.machine import machine_facts, package_versions

KNOWN = {"run": "", "rows": "32", "out": "benchmarks/newton_gradients.json"}
HORIZONS = (1, 4, 8, 16, 32)
STEP = 1e-2
"""Of the central differences, as a share of an action's range to one side."""
WARM = {"cartpole": 0, "ant_v5": 20}
"""Random steps before the states that are compared: the ant has landed."""
NOISE = {"cartpole": 0.2, "ant_v5": 0.5}
"""Deviation of the random actions: no cart leaves its rail."""

Advance = Callable[[int, Tensor, Tensor, Tensor], tuple[Tensor, Tensor]]


def returns(task: Any, advance: Advance, q: Tensor, qd: Tensor, actions: Tensor) -> Tensor:
    """Return the sums of the first t rewards (T, N) of actions (T, N, A); worlds that fail go on."""
    total, found = torch.zeros(len(q)), []
    for t, action in enumerate(actions):
        before = q
        q, qd = advance(t, q, qd, action)
        total = total + task.reward(before, q, qd, action)
        found.append(total)
    return torch.stack(found)


def slopes(task: Any, advance: Advance, q: Tensor, qd: Tensor, actions: Tensor) -> Tensor:
    """Return the gradients (T, N, A) of the sums of rewards by the first action, by automatic differentiation."""
    found = []
    for horizon in HORIZONS:
        first = actions[0].clone().requires_grad_()
        total = returns(task, advance, q, qd, torch.cat((first[None], actions[1:horizon])))[-1]
        found.append(torch.autograd.grad(total.sum(), first)[0])
    return torch.stack(found)


@torch.no_grad()
def differences(
    task: Any, advance: Advance, q: Tensor, qd: Tensor, actions: Tensor, *, size_of_step: float = STEP
) -> Tensor:
    """Return the same by central differences; `advance` takes 2 A worlds for each row."""
    rows, size = actions.shape[1:]
    moved = actions.repeat_interleave(2 * size, 1)
    for k in range(size):
        moved[0, 2 * k :: 2 * size, k] += size_of_step
        moved[0, 2 * k + 1 :: 2 * size, k] -= size_of_step
    q, qd = (x.repeat_interleave(2 * size, 0) for x in (q, qd))
    total = returns(task, advance, q, qd, moved)[[h - 1 for h in HORIZONS]]
    pairs = total.view(len(HORIZONS), rows, size, 2)
    return (pairs[..., 0] - pairs[..., 1]) / (2.0 * size_of_step)


def in_mujoco(name: str) -> Advance:
    """Return a step in MuJoCo, with the task's own physics options."""
    import mujoco
    from robot_rl_envs.make import make_env
    from robot_rl_tasks.registry import get_task

    env, task = make_env(get_task(name), num_envs=1, num_threads=1), TASKS[name]()
    model, is_free = env.scene.model, name == "ant_v5"
    data, decimation = mujoco.MjData(model), env.cfg.sim.decimation
    env.close()

    def advance(t: int, q: Tensor, qd: Tensor, action: Tensor) -> tuple[Tensor, Tensor]:
        force, rows = task.force(action).double().numpy(), []
        for i in range(len(q)):
            mujoco.mj_resetData(model, data)
            data.qpos[:], data.qvel[:], data.qfrc_applied[:] = *turned(q[i], qd[i], is_free, 1), force[i]
            for _ in range(decimation):
                mujoco.mj_step(model, data)
            rows.append(turned(torch.from_numpy(data.qpos), torch.from_numpy(data.qvel), is_free, -1))
        return tuple(torch.from_numpy(np.stack(part)).double() for part in zip(*rows, strict=True))  # type: ignore[return-value]

    return advance


def turned(q: Tensor, qd: Tensor, is_free: bool, way: int) -> tuple[np.ndarray, np.ndarray]:
    """Return a state in MuJoCo's form (way=1) or in Newton's (-1): quaternion w first, spin in the body's frame."""
    import mujoco

    q, qd = q.double().numpy().copy(), qd.double().numpy().copy()
    if is_free:
        quat = q[3:7].copy() if way == -1 else q[[6, 3, 4, 5]]
        matrix = np.zeros(9)
        mujoco.mju_quat2Mat(matrix, quat)
        matrix = matrix.reshape(3, 3)
        qd[3:6] = matrix @ qd[3:6] if way == -1 else matrix.T @ qd[3:6]
        q[3:7] = quat if way == 1 else quat[[1, 2, 3, 0]]
    return q, qd


def in_learned_world(run: Path, q: Tensor, qd: Tensor, actions: Tensor) -> Tensor:
    """Return the gradients (T, N, 1) of the sums of rewards by the first action through a run's learned world."""
    from robot_rl_envs.make import make_env
    from robot_rl_tasks.registry import get_task

    from robot_rl.learn.algorithms.world_model.dynamics import Dynamics
    from robot_rl.learn.checkpoints.checkpoint import load_checkpoint

    tensors = load_checkpoint(sorted((run / "checkpoints").iterdir())[-1])[0]
    weights = {
        key.split("model.", 1)[1]: x for key, x in tensors.items() if key.startswith(("model.", "modules.model."))
    }
    env, task = make_env(get_task("cartpole"), num_envs=len(q), num_threads=1), TASKS["cartpole"]()
    imagination = env.imagine(len(q), HORIZONS[-1])
    model = Dynamics(5, 1, imagination.parts, (256, 256), 0)
    model.load_state_dict(weights)
    model.refresh()
    worlds, found = imagination.read_worlds(), []
    for field, value in (("qpos", q), ("qvel", qd), ("joint_pos", q), ("joint_vel", qd)):
        if field in imagination.carried:
            worlds[:, imagination.carried[field]] = value
    for horizon in HORIZONS:
        first, obs, total = actions[0].clone().requires_grad_(), task.observe(q, qd), torch.zeros(len(q))
        token = imagination.begin(worlds, dict.fromkeys(imagination.widths, obs))
        for t in range(horizon):
            action = first if t == 0 else actions[t]
            change = model.outputs.inverse(model.raw(obs, action))
            step = imagination.step(t, action, change, token)
            obs, token, total = step.obs["critic"], step.token, total + step.reward
        found.append(torch.autograd.grad(total.sum(), first)[0])
    env.close()
    return torch.stack(found)


def compare(one: Tensor, other: Tensor) -> list[dict[str, float]]:
    """Return for each horizon how a gradient (T, N, A) compares with another."""
    found = []
    for horizon, a, b in zip(HORIZONS, one.double(), other.double(), strict=True):
        whole = torch.nn.functional.cosine_similarity(a.flatten(), b.flatten(), dim=0)
        each = torch.nn.functional.cosine_similarity(a, b, dim=1)
        sizes = {"size": a.norm(dim=1).median(), "largest": a.norm(dim=1).max(), "other_size": b.norm(dim=1).median()}
        row = {"cosine": whole, "median_cosine": each.median(), "agree": (each > 0.9).double().mean(), **sizes}
        found.append({"horizon": horizon, **{key: float(f"{float(x):.4g}") for key, x in row.items()}})
    return found


def measure(name: str, rows: int, run: str) -> dict[str, Any]:
    """Return all comparisons of a task."""
    task, generator = TASKS[name](), torch.Generator().manual_seed(1)
    world = World(task, rows, HORIZONS[-1])
    many = World(task, 2 * rows * task.actions, 1, requires_grad=False)
    q, qd = task.start(rows, generator)
    drawn = torch.randn(WARM[name] + HORIZONS[-1], rows, task.actions, generator=generator).clamp(-2.0, 2.0)
    warm, actions = (NOISE[name] * drawn).split([WARM[name], HORIZONS[-1]])
    with torch.no_grad():
        for action in warm:
            q, qd = world.step(0, q, qd, action)
    own = slopes(task, world.step, q, qd, actions)
    in_newton = differences(task, many.step, q, qd, actions)
    mujoco = differences(task, in_mujoco(name), q, qd, actions.double())
    found = {"newton, its differences": compare(own, in_newton), "newton, mujoco": compare(own, mujoco)}
    found["differences: newton, mujoco"] = compare(in_newton, mujoco)
    finer = differences(task, in_mujoco(name), q, qd, actions.double(), size_of_step=0.1 * STEP)
    found["mujoco, a tenth of the step"] = compare(mujoco, finer)
    if name == "cartpole" and run:
        learned = in_learned_world(Path(run), q, qd, actions)
        found["learned world, mujoco"] = compare(learned, mujoco)
    return found


def main() -> None:
    """Compare on both tasks and write the file."""
    options = read_words(sys.argv[1:], KNOWN, whole=("rows",))
    torch.set_num_threads(1)
    found: dict[str, Any] = {"name": "gradients by the first action", "machine": machine_facts()}
    found["versions"] = package_versions() | {"newton": version("newton")}
    for name in TASKS:
        found[name] = measure(name, int(options["rows"]), options["run"])
        for who, table in found[name].items():
            print(name, who, *table, sep="\n  ")
    write_atomic(Path(options["out"]), json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
