"""Convert Gymnasium's spaces for the learner: observations to groups of float tensors, actions to rows of numbers."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from gymnasium import spaces
from torch import Tensor
from torch.nn.functional import one_hot

from robot_rl.errors import UserError
from robot_rl.sources.external import channels_last, refuse_twice

MAPPINGS = ("clip", "rescale")
DEFAULT_GROUPS = ("actor", "critic")
READABLE = "Box, Discrete, MultiDiscrete, MultiBinary, and Dict and Tuple of them"


@dataclass(frozen=True, slots=True)
class Leaf:
    """An array in an observation, and its conversion to numbers.

    Attributes:
        path: Keys that lead to it in an observation.
        space: Its space, of one world.
        shape: Of its numbers, without the worlds.
    """

    path: tuple[Any, ...]
    space: spaces.Space
    shape: tuple[int, ...]

    def read(self, obs: Any, device: torch.device | str) -> Tensor:
        """Return the numbers (N, *shape) float32 of this part of a batch of observations, a copy."""
        for key in self.path:
            obs = obs[key]
        values = obs if isinstance(obs, Tensor) else torch.from_numpy(np.require(obs, requirements=("C", "W")))
        values, space = values.to(device), self.space
        if isinstance(space, spaces.Discrete):
            return one_hot(values.long().reshape(-1) - int(space.start), int(space.n)).to(torch.float32)
        if isinstance(space, spaces.MultiDiscrete):
            chosen = values.long().flatten(1) - torch.from_numpy(space.start.reshape(-1).astype(np.int64)).to(device)
            counts = [int(n) for n in space.nvec.reshape(-1)]
            parts = [one_hot(chosen[:, k], n) for k, n in enumerate(counts)]
            return torch.cat(parts, dim=-1).to(torch.float32)
        if is_image(space):
            floats = values.to(torch.float32) * (1.0 / 255.0)
            floats = floats.movedim(-1, -3) if channels_last(space.shape or ()) else floats
            return floats.reshape(values.shape[0], *self.shape)
        return values.to(torch.float32, copy=True).reshape(values.shape[0], *self.shape)


def is_image(space: spaces.Space) -> bool:
    """Return whether a space is one of images: bytes in two dimensions, or three, or a stack of such frames."""
    return isinstance(space, spaces.Box) and space.dtype == np.uint8 and len(space.shape) in (2, 3, 4)


class ObservationReader:
    """Converts batches of observations of a space, of one world, to groups of float32 tensors.

    The keys of a Dict are the groups, those of a Dict inside it come after a dot. Anything else is one observation that
    actor and critic share: the groups "actor" and "critic" are the same tensor. A Tuple is flattened into one vector.
    A choice becomes a one-hot vector. Images of bytes are scaled to [0, 1], with their channels first, as
    `robot_rl.sources.external.channels_last` finds them.

    Attributes:
        groups: Name -> shape of a group, without the worlds.
        default: The groups that the actor and the critic see by default, by "actor" and "critic".

    Raises:
        UserError: The elements of a space are not a fixed number of numbers, or two keys have one name.
    """

    def __init__(self, space: spaces.Space) -> None:
        self._leaves: dict[str, list[Leaf]] = {}
        self._paths: dict[str, tuple[Any, ...]] = {}
        if isinstance(space, spaces.Dict):
            self._add(space, (), "")
            names = tuple(self._leaves)
            self.default = {name: (name,) if name in names else names for name in DEFAULT_GROUPS}
        else:
            leaves = list(_leaves(space, ()))
            self._leaves = dict.fromkeys(DEFAULT_GROUPS, leaves)
            self.default = {name: (name,) for name in DEFAULT_GROUPS}
        self.groups = {name: _shape(leaves) for name, leaves in self._leaves.items()}

    def _add(self, space: spaces.Dict, path: tuple[Any, ...], prefix: str) -> None:
        for key, part in space.items():
            name = f"{prefix}{key}"
            if isinstance(part, spaces.Dict):
                self._add(part, (*path, key), f"{name}.")
            else:
                if name in self._leaves:
                    refuse_twice(name, self._paths[name], (*path, key))
                self._paths[name] = (*path, key)
                self._leaves[name] = list(_leaves(part, (*path, key)))

    def read(self, obs: Any, device: torch.device | str) -> dict[str, Tensor]:
        """Return the groups, (N, *shape) each, of a batch of observations as a vector environment returns them."""
        tensors: dict[int, Tensor] = {}
        groups = {}
        for name, leaves in self._leaves.items():
            if id(leaves) not in tensors:
                parts = [leaf.read(obs, device) for leaf in leaves]
                tensors[id(leaves)] = parts[0] if len(parts) == 1 else torch.cat([p.flatten(1) for p in parts], dim=-1)
            groups[name] = tensors[id(leaves)]
        return groups

    def read_rows(self, rows: Sequence[Any], device: torch.device | str) -> dict[str, Tensor]:
        """Return the groups, (k, *shape) each, of k observations of single worlds."""
        return self.read(_stack(rows), device)


def _stack(rows: Sequence[Any]) -> Any:
    """Return a batch of observations of single worlds."""
    first = rows[0]
    if isinstance(first, Mapping):
        return {key: _stack([row[key] for row in rows]) for key in first}
    if isinstance(first, tuple):
        return tuple(_stack([row[k] for row in rows]) for k in range(len(first)))
    return torch.stack(list(rows)) if isinstance(first, Tensor) else np.stack([np.asarray(row) for row in rows])


def _leaves(space: spaces.Space, path: tuple[Any, ...]) -> Iterator[Leaf]:
    """Yield the arrays in a space, in order."""
    if isinstance(space, spaces.Dict):
        for key, part in space.items():
            yield from _leaves(part, (*path, key))
    elif isinstance(space, spaces.Tuple):
        for key, part in enumerate(space):
            yield from _leaves(part, (*path, key))
    else:
        yield Leaf(path, space, _leaf_shape(space))


def _leaf_shape(space: spaces.Space) -> tuple[int, ...]:
    if isinstance(space, spaces.Discrete):
        return (int(space.n),)
    if isinstance(space, spaces.MultiDiscrete):
        return (int(space.nvec.sum()),)
    if isinstance(space, spaces.Box | spaces.MultiBinary):
        shape = tuple(int(n) for n in space.shape or ())
        return _image_shape(shape) if is_image(space) else shape or (1,)
    raise UserError("observation_space", _short(space), "cannot be learned from", f"it must be {READABLE}")


def _image_shape(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Return an image's shape with the channels first; those of a stack of frames are one after another."""
    if len(shape) == 2:
        return shape
    *frames, a, b, c = shape
    channels, rows, columns = (c, a, b) if channels_last(shape) else (a, b, c)
    return (math.prod(frames) * channels, rows, columns)


def _shape(leaves: list[Leaf]) -> tuple[int, ...]:
    return leaves[0].shape if len(leaves) == 1 else (sum(math.prod(leaf.shape) for leaf in leaves),)


def _short(space: spaces.Space) -> str:
    """Return a space as a short text for a message."""
    text = " ".join(str(space).split())
    return text if len(text) <= 60 else f"{text[:57]}..."


class ActionMap:
    """Converts the policy's actions to the environment's.

    Args:
        space: The action space of one world.
        mapping: For a Box, "clip": an action is clipped to the box; "rescale": [-1, 1] is stretched onto the box if
            that is bounded, and clipped beyond.

    Attributes:
        num_actions: Components of an action.
        choices: Number of values of each component; None if components are real numbers.

    Raises:
        UserError: The space is not a Box, Discrete, MultiDiscrete or MultiBinary, or the mapping is unknown.
    """

    def __init__(self, space: spaces.Space, mapping: str = "clip") -> None:
        if mapping not in MAPPINGS:
            raise UserError("actions", mapping, f"must be one of {', '.join(MAPPINGS)}")
        self.choices: tuple[int, ...] | None = None
        self._shape: tuple[int, ...] = tuple(space.shape or ())
        self._start: np.ndarray | int = 0
        if isinstance(space, spaces.Box):
            self._set_box(space, mapping)
        elif isinstance(space, spaces.Discrete):
            self.choices, self._start = (int(space.n),), int(space.start)
        elif isinstance(space, spaces.MultiDiscrete):
            self.choices = tuple(int(n) for n in space.nvec.reshape(-1))
            self._start = space.start.reshape(-1)
        elif isinstance(space, spaces.MultiBinary):
            self.choices = (2,) * math.prod(self._shape)
        else:
            right = "it must be Box, Discrete, MultiDiscrete or MultiBinary"
            raise UserError("action_space", _short(space), "no policy can act in it", right)
        self.num_actions = math.prod(self._shape)
        self._dtype = np.dtype(np.int64 if space.dtype is None else space.dtype)

    def _set_box(self, space: spaces.Box, mapping: str) -> None:
        low, high = (np.asarray(bound, dtype=np.float64).reshape(-1) for bound in (space.low, space.high))
        bounded = np.isfinite(low) & np.isfinite(high)
        stretch = bounded & (mapping == "rescale")
        self._center = np.where(stretch, 0.5 * (np.where(bounded, low, 0.0) + np.where(bounded, high, 0.0)), 0.0)
        self._half = np.where(stretch, 0.5 * (np.where(bounded, high, 0.0) - np.where(bounded, low, 0.0)), 1.0)
        self._low, self._high = low, high

    def bounds(self) -> tuple[np.ndarray, np.ndarray]:
        """Return the policy's actions (num_actions,) at a Box's lower and upper limits; -1 and 1 if it has none."""
        low, high = (self._low - self._center) / self._half, (self._high - self._center) / self._half
        return np.where(np.isfinite(low), low, -1.0), np.where(np.isfinite(high), high, 1.0)

    def to_env(self, actions: Tensor) -> np.ndarray:
        """Return the environment's actions (N, *shape) of the policy's (N, num_actions).

        Raises:
            ValueError: The actions have another width, or an index is none of its choices.
        """
        given = actions.detach().cpu().numpy()
        if given.ndim != 2 or given.shape[1] != self.num_actions:
            raise ValueError(f"actions have shape {given.shape}, must be (num_envs, {self.num_actions})")
        if self.choices is None:
            wide = np.clip(given.astype(np.float64) * self._half + self._center, self._low, self._high)
            values = np.rint(wide) if self._dtype.kind in "iu" else wide
        else:
            values = given.astype(np.int64)
            if (values != given).any() or (values < 0).any() or (values >= self.choices).any():
                raise ValueError(
                    f"actions must be indices, whole numbers below {self.choices}; got {given[0].tolist()}"
                )
            values = values + self._start
        return values.astype(self._dtype).reshape(given.shape[0], *self._shape)
