"""Which terms of a task have a gradient, and whether it is right: Warp's adjoint against finite differences."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from robot_rl_envs.entity import mujoco_fields
from robot_rl_envs.imagination.frames import DERIVED
from robot_rl_envs.imagination.terms import FLOATS, Terms, torch_terms

STEPS = (2e-3, 2e-4)
"""Steps of finite differences: the shorter meets fewer kinks, the longer rounds less. Forces have longer ones."""
SHARE = 0.02
"""Most by which a gradient may differ from the finite difference, of its size."""
NORMAL = {"qvel": 1.5, "last_joint_vel": 1.5, "actuator_force": 20.0, "command": 0.7}
NORMAL |= dict.fromkeys(("action", "prev_action", "prev_prev_action"), 1.0)
"""Deviations of the values drawn for a state."""
EPS = float(np.finfo(np.float32).eps)
SMALL = 1e-6
"""A gradient below this is none."""
UNUSED = ("episode_", "interval_left", "command_left", "pipe_", "history", "metric_values", "reward", "measured")
"""What the names of fields begin with that no term reads as a function of the state."""
HEADS = {"actuator_force": "torques"}
HEADS |= dict.fromkeys(("imu_acc", "imu_acc_now"), "accelerations")
HEADS |= dict.fromkeys(("foot_force", "contact_force"), "contact forces")
_FEET = ("foot_contact", "foot_touchdown", "foot_air_time_s", "foot_contact_time_s", "foot_peak_height_w")
HEADS |= dict.fromkeys(_FEET, "contacts")
"""Fields that only an engine knows, and the parts that a model of the dynamics has to predict instead."""


@dataclass(slots=True)
class TermGradient:
    """Result of the check of one term's gradient.

    Attributes:
        path: "rewards.track".
        verdict: "right"; "wrong" if it differs from finite differences; "steps" if the term changes from state to
            state without a gradient at any; "flat" if it is the same in all states seen; "torch" for a function
            of torch, which was not checked.
        reads: the inputs with a gradient, by the largest first.
        largest: the largest gradient by one number of an input.
        error: the largest difference beyond the error of the finite difference.
        where: the input with that difference.
    """

    path: str
    verdict: str
    reads: list[str] = field(default_factory=list)
    largest: float = 0.0
    error: float = 0.0
    where: str = ""

    @property
    def stands_in(self) -> str:
        """What an algorithm that learns through a model has instead of the simulator's value."""
        if self.verdict == "torch":
            return "torch's own gradient"
        if self.path.startswith("terminations."):
            return "none: it ends an imagined episode"
        if self.verdict in ("steps", "flat"):
            return "its value, without a gradient"
        heads = dict.fromkeys(HEADS.get(name, "") or _engine_head(name) for name in self.reads)
        return ", ".join(f"the model's {head}" for head in heads if head)


def _engine_head(name: str) -> str:
    field = name.removeprefix("engine_")
    return field if name != field and field not in mujoco_fields.STATE else ""


def check_gradients(env: Any, *, rows: int = 64, steps: int = 60, seed: int = 0) -> list[TermGradient]:
    """Compare the gradient of every term with finite differences, in states that random actions lead to.

    At a kink (the differences to both sides disagree) any gradient between them is right.

    Half of the states are as the simulator left them, half are drawn, since few episodes come to every limit.

    Args:
        env: A `robot_rl_envs.env.Env`, which is stepped.
        rows: States.
        steps: Control steps until the states are taken.
        seed: Of the actions and states.

    Raises:
        ValueError: The task is for several robots.
    """
    import torch

    if env.scene.crew is not None:
        raise ValueError(f"task={env.cfg.name}: is for several robots; terms of one robot are checked")

    generator = torch.Generator().manual_seed(seed)
    env.reset()
    for _ in range(steps):
        env.step(0.5 * torch.randn(env.num_envs, env.num_actions, generator=generator).to(env.device))
    terms = Terms(env, rows)
    terms.take(env.operands().arrays, np.arange(rows) % env.num_envs)
    _spread(terms, env.scene, np.random.default_rng(seed))
    inputs = [name for name in terms.arrays if _is_input(name, terms.arrays[name])]
    base = terms.values()
    slopes = {name: [_differences(terms, name, base, step) for step in STEPS] for name in inputs}
    paths = list(dict.fromkeys(column.path for column in terms.columns))
    found = {path: TermGradient(path, "flat") for path in paths}
    for at, column in enumerate(terms.columns):
        weight = np.zeros_like(base)
        weight[:, at] = 1.0
        terms.values()
        gradients = terms.gradients(weight, inputs)
        _compare(found[column.path], gradients, {name: [one[..., at] for one in each] for name, each in slopes.items()})
    for at, column in enumerate(terms.columns):
        one = found[column.path]
        if one.verdict == "flat" and np.ptp(base[:, at]) > SMALL:
            one.verdict = "steps"
    return [*found.values(), *(TermGradient(path, "torch") for path in torch_terms(env.cfg))]


def _spread(terms: Terms, scene: Any, rng: np.random.Generator) -> None:
    """Draw joints, base, velocities, forces and contacts of every other row, and put objects at named sites."""
    drawn, entity = np.arange(1, terms.rows, 2), scene.entity
    count = len(drawn)

    def change(name: str, columns: Any, values: Any) -> None:
        if name in terms.arrays and terms.arrays[name].size:
            given = terms.arrays[name].numpy().copy()
            given[drawn[:, None], columns] = values
            terms.arrays[name].assign(given)

    lower, upper = entity.joint_range.T
    bounded = np.isfinite(upper - lower) & (upper > lower)
    lower, upper, joints = lower[bounded], upper[bounded], entity.joint_qpos[bounded]
    change("qpos", joints, lower + (upper - lower) * rng.uniform(-0.1, 1.1, (count, len(joints))))
    if scene.base:
        at = scene.entity.base_qpos
        angle, axis = rng.uniform(0.0, 1.5, (count, 1)), rng.normal(size=(count, 3))
        axis /= np.linalg.norm(axis, axis=1, keepdims=True)
        change("qpos", np.arange(at + 3, at + 7), np.concatenate((np.cos(angle / 2), np.sin(angle / 2) * axis), 1))
        height = terms.arrays["qpos"].numpy()[drawn, at + 2 : at + 3]
        change("qpos", [at + 2], height * rng.uniform(0.4, 1.2, (count, 1)))
    for name, size in NORMAL.items():
        width = terms.arrays[name].numpy().reshape(terms.rows, -1).shape[1]
        change(name, np.arange(width), rng.normal(scale=size, size=(count, width)))
    steps = terms.arrays["step_count"].numpy().copy()
    steps[drawn] = rng.integers(0, 400, count)
    terms.arrays["step_count"].assign(steps)
    for name, most in (("foot_force", 200.0), ("contact_force", 20.0), ("foot_air_time_s", 0.5)):
        if name in terms.arrays:
            width = terms.arrays[name].shape[1]
            change(name, np.arange(width), rng.uniform(0.0, most, (count, width)))
    for name in ("foot_contact", "foot_touchdown"):
        width = terms.arrays[name].shape[1]
        change(name, np.arange(width), rng.integers(0, 2, (count, width)))
    if "site_pos_w" in terms.arrays and scene.objects:
        terms.values()
        sites = terms.arrays["site_pos_w"].numpy()[drawn]
        for thing in scene.elements.objects.values():
            if not thing.fixed:
                near = sites[np.arange(count), rng.integers(0, sites.shape[1], count)]
                change("qpos", np.arange(thing.qpos, thing.qpos + 3), near + rng.normal(scale=0.03, size=(count, 3)))


def _is_input(name: str, array: Any) -> bool:
    scalar = getattr(array.dtype, "_wp_scalar_type_", array.dtype)
    if scalar not in FLOATS or not array.size or name.startswith(DERIVED + UNUSED):
        return False
    return name not in ("ctrl", "sensordata", "overflow")


def _differences(terms: Terms, name: str, base: np.ndarray, share: float) -> np.ndarray:
    """Return central differences, half the gap of the one-sided ones, and the error of rounding, (3, B, K, columns)."""
    array = terms.arrays[name]
    given = array.numpy().copy()
    flat = given.reshape(terms.rows, -1)
    reach = np.abs(terms.arrays["qpos"].numpy()).max(1, keepdims=True)  # Far from the origin positions are coarse.
    found = np.zeros((3, terms.rows, flat.shape[1], base.shape[1]))
    for k in range(flat.shape[1]):
        size = np.abs(flat[:, k])
        step = (share * (np.ones_like(size) if name == "qpos" else np.maximum(size, 1.0))).astype(np.float32)
        sides = []
        for sign in (1.0, -1.0):
            moved = flat.copy()
            moved[:, k] += sign * step
            taken = (moved[:, k] - flat[:, k])[:, None]
            array.assign(moved.reshape(given.shape))
            sides.append((terms.values() - base) / taken)
        found[0, :, k] = 0.5 * (sides[0] + sides[1])
        found[1, :, k] = 0.5 * np.abs(sides[0] - sides[1])
        rounding = np.abs(base) + reach * np.maximum(np.abs(found[0, :, k]), 1.0)
        found[2, :, k] = 4.0 * EPS * rounding / step[:, None]
    array.assign(given)
    return found


def _compare(one: TermGradient, gradients: dict[str, np.ndarray], slopes: dict[str, list[np.ndarray]]) -> None:
    """Add to a term's figures those of one of its numbers."""
    sizes: dict[str, float] = {}
    for name, given in gradients.items():
        gradient = given.reshape(slopes[name][0][0].shape).astype(np.float64)
        size = float(np.abs(gradient).max())
        excess = np.full(gradient.shape, np.inf)
        for slope, gap, rounding in slopes[name]:
            explained = gap + rounding + SHARE * np.maximum(np.abs(gradient), np.abs(slope))
            excess = np.fmin(excess, np.abs(gradient - slope) - explained)
        if float(excess.max()) > max(one.error, SMALL):
            one.error, one.where, one.verdict = float(excess.max()), name, "wrong"
        if size > SMALL:
            sizes[name] = size
    one.reads = list(dict.fromkeys([*one.reads, *sorted(sizes, key=sizes.__getitem__, reverse=True)]))
    one.largest = max([one.largest, *sizes.values()])
    if one.verdict == "flat" and sizes:
        one.verdict = "right"
