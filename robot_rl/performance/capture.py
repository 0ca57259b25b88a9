"""The parts of an iteration that a CUDA graph could not hold, or that would wait for a GPU: found on a CPU.

The learner runs on tensors that have a GPU's device and no data: everything that needs a value in Python is seen, and
the code takes the branches that it takes on a GPU. The environment's step runs without launching its kernels, and its
calls to Warp are seen. The content of a graph is run twice: a number or a branch of Python's that differs would be
frozen in the graph.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path
from types import FrameType
from typing import Any
from unittest import mock

import torch
import warp as wp
from rsl_rl.env import VecEnv
from tensordict import TensorDict
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_flatten

from robot_rl.errors import UserError
from robot_rl.learn.build import find_maker
from robot_rl.learn.make_trainer import make_trainer
from robot_rl.performance.collect import collecting
from robot_rl.settings import LearnerCfg, apply_overrides

DEVICE = torch.device("meta")
"""Tensors on it have a shape and no data; for the learner it is a device that is not the CPU."""
WARM_UP = 1
"""Iterations before those that are watched."""
SYNC, COPY, ALLOCATION, NUMBER, BRANCH = "sync", "copy", "allocation", "number", "branch"
MEANINGS = {
    SYNC: "Python waits for a value of the device",
    COPY: "the host's memory is copied in a graph",
    ALLOCATION: "memory is allocated in every step",
    NUMBER: "a number of Python's changes, a graph would keep the first",
    BRANCH: "Python takes another way the second time, a graph would keep the first",
}
ENGINE = "/mujoco_warp/"
"""A path that has it is the engine's: its allocations in a graph come from Warp's pool."""
_SKIPPED = ("/torch/", "/tensordict/", "/warp/", "/contextlib.py", "/unittest/", __file__)
_SYNCS = {"_local_scalar_dense": "a number read", "is_nonzero": "a truth value read", "equal": "torch.equal"}
_SYNCS |= {name: name for name in ("nonzero", "masked_select", "bincount", "repeat_interleave", "unique_dim")}
_SYNCS["_unique2"] = "unique"


@dataclass(frozen=True, slots=True)
class Finding:
    """Something that a GPU would be waited for, or that a graph could not hold.

    Attributes:
        kind: one of MEANINGS.
        part: "rollout", "update" or "environment".
        where: file, line and function.
        what: the operation.
    """

    kind: str
    part: str
    where: str
    what: str

    def __str__(self) -> str:
        return f"{self.part}: {MEANINGS[self.kind]} ({self.what}), {self.where}"


@dataclass(frozen=True, slots=True)
class Operation:
    """An operation on the device, with the numbers that Python gives it, and the place of the call."""

    name: str
    numbers: tuple[Any, ...]
    where: str


def check_capture(make_env: Callable[[], Any], make_session: Callable[[VecEnv], Any]) -> list[Finding]:
    """Return the parts of a run's iteration that would wait for the GPU, or could not be in a graph, each place once.

    Args:
        make_env: builds the environment on the CPU, with the engine of GPUs.
        make_session: builds the learner's session for an environment.
    """
    findings, env = check_env(make_env)
    return [*findings, *check_learner(env, make_session)]


def check_run(cfg: Any) -> list[Finding]:
    """Return the parts of a run's iteration, on the CPU with the engine of GPUs, that would wait or not fit a graph.

    Raises:
        UserError: the learner has its own loop.
    """
    learner = watched_cfg(cfg.learner)
    if find_maker(learner, "make_session"):
        raise UserError("learner", learner.name, "has a loop of its own", "check=capture looks at robot-rl's")
    return check_capture(cfg.make_env, lambda env: make_trainer(env, learner, seed=cfg.seed))


def watched_cfg(cfg: LearnerCfg) -> LearnerCfg:
    """Return a learner's settings with fewer steps and no warm-up: the same operations, sooner, outside of graphs."""
    return apply_overrides(cfg, {**cfg.smoke_overrides, "graph": "off"})


def check_env(make_env: Callable[[], Any]) -> tuple[list[Finding], Any]:
    """Return the calls to Warp in an environment's step that a graph could not hold, and the environment, closed."""
    found: list[Finding] = []
    with collecting():
        env = make_env()
        env.reset()
        action = torch.zeros(env.num_envs, env.num_actions)
        env.step(action)
        env._graph = None  # What follows is recorded once more.
        with _watching_warp(found):
            env.step(action)
        env.close()
    return list(dict.fromkeys(found)), env


def check_learner(env: Any, make_session: Callable[[VecEnv], Any]) -> list[Finding]:
    """Return the parts of a learner's iteration that would wait for a GPU, or could not be in a graph, each place once.

    Args:
        env: the environment, of which the shapes are taken.
        make_session: builds the learner's session for an environment on the GPU.
    """
    watch, env = Watch(), ShapeEnv(env)
    with without_cuda(), watch:
        session = make_session(env)
        algorithm = session.algorithm
        with contextlib.ExitStack() as stack:
            # What a graph holds: the steps of a rollout, and the step of a minibatch.
            walk = watch.repeated("rollout", session.collector._walk)
            stack.enter_context(mock.patch.object(session.collector, "_walk", walk))
            if hasattr(algorithm, "step"):
                stack.enter_context(mock.patch.object(algorithm, "step", watch.repeated("update", algorithm.step)))
            for iteration in range(2 + WARM_UP):
                session.iteration = iteration
                watch.is_on = iteration >= WARM_UP
                watch.part = "rollout"
                rollout = session.collect()
                watch.part = "update"
                algorithm.update(rollout, 0.1 * iteration)
    return list(dict.fromkeys(watch.found))


class ShapeEnv(VecEnv):
    """An environment on the GPU of which only the shapes are real."""

    def __init__(self, env: Any) -> None:
        """Take the shapes of an environment."""
        self.num_envs, self.num_actions, self.cfg = env.num_envs, env.num_actions, env.cfg
        self.max_episode_length, self.device, self.step_dt = env.max_episode_length, str(DEVICE), env.step_dt
        for name in ("discrete_actions", "mirror", "reward_groups", "mirror_maps"):
            if hasattr(env, name):
                setattr(self, name, getattr(env, name))
        self._env = env
        self._shapes = {name: (value.shape, value.dtype) for name, value in env.get_observations().items()}
        action = torch.zeros(env.num_envs, env.num_actions)
        with collecting():
            *_, extras = env.step(action)
        self._extras = extras
        self.episode_length_buf = torch.zeros(env.num_envs, dtype=torch.int64)

    def get_observations(self) -> TensorDict:
        """Return observation groups."""
        values = {name: torch.zeros(shape, dtype=dtype, device=DEVICE) for name, (shape, dtype) in self._shapes.items()}
        return TensorDict(values, batch_size=[self.num_envs], device=DEVICE)

    def reset(self) -> TensorDict:
        """Return observation groups."""
        return self.get_observations()

    def step(self, actions: Tensor) -> tuple[TensorDict, Tensor, Tensor, dict[str, Any]]:
        """Return the results of a step, which depend on nothing."""
        extras = {key: _on_gpu(value) for key, value in self._extras.items() if key not in ("log", "final_obs")}
        extras |= {"log": {}, "final_obs": self.get_observations()}
        reward = torch.zeros(self.num_envs, device=DEVICE)
        return self.get_observations(), reward, torch.zeros(self.num_envs, dtype=torch.bool, device=DEVICE), extras

    def __getattr__(self, name: str) -> Any:
        """Return any other attribute of the environment."""
        return getattr(self.__dict__["_env"], name)


def _on_gpu(value: Any) -> Any:
    return torch.zeros(value.shape, dtype=value.dtype, device=DEVICE) if isinstance(value, Tensor) else value


class Watch(TorchDispatchMode):
    """Runs operations on the GPU's device without data, and notes those that need a value."""

    def __init__(self) -> None:
        super().__init__()
        self.part, self.is_on = "", False
        self.found: list[Finding] = []
        self._now: list[Operation] | None = None
        self._before: dict[str, list[Operation]] = {}

    def repeated(self, part: str, run: Callable[..., Any]) -> Callable[..., Any]:
        """Return a function that also compares its operations with those of its last call."""

        def watched(*args: Any, **kwargs: Any) -> Any:
            self._now = [] if self.is_on else None
            result = run(*args, **kwargs)
            if self._now is not None:
                if part in self._before:
                    self._compare(part, self._before[part], self._now)
                self._before[part], self._now = self._now, None
            return result

        return watched

    def _compare(self, part: str, first: Sequence[Operation], second: Sequence[Operation]) -> None:
        for before, after in zip_longest(first, second, fillvalue=Operation("the end", (), "")):
            if (before.name, before.where) != (after.name, after.where):
                what = f"{before.name}, then {after.name}"
                self.found.append(Finding(BRANCH, part, after.where or before.where, what))
                return
            if before.numbers != after.numbers:
                changed = [f"{a}, then {b}" for a, b in zip(before.numbers, after.numbers, strict=False) if a != b]
                what = f"{before.name}: {changed[0] if changed else 'another count'}"
                self.found.append(Finding(NUMBER, part, after.where, what))

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        kwargs, name = dict(kwargs or {}), func._schema.name.removeprefix("aten::")
        tensors = [value for value in tree_flatten((args, kwargs))[0] if isinstance(value, Tensor)]
        wanted = kwargs.get("device")
        is_wanted = wanted is not None and torch.device(wanted) == DEVICE
        if not is_wanted and not any(tensor.device == DEVICE for tensor in tensors):
            return func(*args, **kwargs)
        if self._now is not None:
            self._now.append(Operation(name, _numbers(args, kwargs), _where()))
        kwargs |= dict.fromkeys(kwargs.keys() & {"generator"})  # One of the host's draws no numbers here.
        if (wanted is not None and not is_wanted) or (name == "copy_" and args[0].device != DEVICE):
            self._note(SYNC, "copied to the host")
            return args[0] if name == "copy_" else torch.zeros(args[0].shape, dtype=args[0].dtype)
        if name in _SYNCS:
            self._note(SYNC, _SYNCS[name])
            return _some_value(name, args[0])
        if name in ("index", "index_put_") and (masks := [one for one in args[1] if one is not None and _is_mask(one)]):
            self._note(SYNC, "indexed by a mask")
            return args[0] if name == "index_put_" else args[0].new_empty((1, *args[0].shape[masks[0].ndim :]))
        if name == "_fused_adam_":
            return None
        return func(*args, **kwargs)

    def _note(self, kind: str, what: str) -> None:
        if self.is_on:
            self.found.append(Finding(kind, self.part, _where(), what))


@contextmanager
def without_cuda() -> Iterator[None]:
    """Let code make generators of a GPU, and replace its CUDA graphs of an update by none."""

    class Generator(torch.Generator):
        device = DEVICE

    host = torch.Generator

    def made(device: Any) -> torch.Generator:
        return Generator() if torch.device(device) == DEVICE else host(device)

    with (
        mock.patch.object(torch, "Generator", lambda device="cpu": made(device)),
        mock.patch("robot_rl.learn.algorithms.ppo.ppo.make_graphed", return_value=None),
        mock.patch("torch.optim.adam._device_dtype_check_for_fused"),
    ):
        yield


def _numbers(*values: Any) -> tuple[Any, ...]:
    return tuple(value for value in tree_flatten(values)[0] if isinstance(value, (bool, int, float)))


def _is_mask(tensor: Tensor) -> bool:
    return tensor.dtype in (torch.bool, torch.uint8)


def _some_value(name: str, tensor: Tensor) -> Any:
    """Return a value that an operation that reads the device could have returned."""
    if name == "_local_scalar_dense":
        return True if tensor.dtype == torch.bool else 1.0 if tensor.is_floating_point() else 1
    if name in ("equal", "is_nonzero"):
        return True
    return tensor.new_zeros((1, max(tensor.ndim, 1)), dtype=torch.int64) if name == "nonzero" else tensor.new_zeros(1)


@contextmanager
def _watching_warp(found: list[Finding]) -> Iterator[None]:
    """Note the calls to Warp that a graph could not hold."""

    def noting(kind: str, what: str, run: Callable[..., Any]) -> Callable[..., Any]:
        def noted(*args: Any, **kwargs: Any) -> Any:
            where = _where()
            if kind != ALLOCATION or ENGINE not in where:
                found.append(Finding(kind, "environment", where, what))
            return run(*args, **kwargs)

        return noted

    def assign(array: Any, source: Any) -> Any:
        if not isinstance(source, wp.array):
            found.append(Finding(COPY, "environment", _where(), "array.assign"))
        return before(array, source)

    before = wp.array.assign
    patches = [mock.patch.object(wp.array, "numpy", noting(SYNC, "array.numpy", wp.array.numpy))]
    patches.append(mock.patch.object(wp.array, "assign", assign))
    for name in ("synchronize", "synchronize_device", "synchronize_stream"):
        patches.append(mock.patch.object(wp, name, noting(SYNC, name, getattr(wp, name))))
    for name in ("zeros", "empty", "full", "ones", "clone", "zeros_like", "empty_like", "full_like"):
        patches.append(mock.patch.object(wp, name, noting(ALLOCATION, f"wp.{name}", getattr(wp, name))))
    for patch in patches:
        patch.start()
    try:
        yield
    finally:
        for patch in patches:
            patch.stop()


def _where() -> str:
    """Return file, line and function of the innermost frame that is of no library."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        file = frame.f_code.co_filename
        if not any(part in file for part in _SKIPPED) and not file.startswith("<"):
            return f"{_short(file)}:{frame.f_lineno} in {frame.f_code.co_name}"
        frame = frame.f_back
    return "unknown"


def _short(file: str) -> str:
    parts = Path(file).parts
    for k, part in enumerate(parts):
        if part.startswith("robot_rl") and k + 1 < len(parts):
            return "/".join(parts[k:])
    return file
