"""The state of each world in a checkpoint, and its restoration into as many worlds, or another number of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from robot_rl.errors import UserError
from robot_rl.learn.checkpoints.checkpoint import load_replay, load_worlds
from robot_rl.learn.ranks import ProcessGroup

ENV = "env."
"""Prefix of the environment's tensors."""
LIVE = "worlds."
"""Prefix of the learner's state of each world, (N, ...)."""
OWN = "own."
"""Prefix of the tensors that a process other than the first has for itself, such as its random streams."""
REPLAY = "replay."
"""Prefix of the tensors of a learner's replay memory."""
FRESH = "give fresh_worlds=true to begin them again"


def pack(env: Any, live: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return the state of an environment's worlds: its `state_dict()`, if it can also load it, and `live`.

    `live` is the learner's state of each world by name, (N, ...) each.
    """
    state = env.state_dict() if has_state(env) else {}
    return {f"{ENV}{name}": t for name, t in state.items()} | {f"{LIVE}{name}": t for name, t in live.items()}


def has_state(env: Any) -> bool:
    """Return whether an environment can save and load its state."""
    return callable(getattr(env, "state_dict", None)) and callable(getattr(env, "load_state_dict", None))


def under(tensors: Mapping[str, Tensor], prefix: str) -> dict[str, Tensor]:
    """Return the tensors with a prefix in their names, by the rest of the name."""
    return {name.removeprefix(prefix): tensor for name, tensor in tensors.items() if name.startswith(prefix)}


def read_own(path: Path, meta: Mapping[str, Any], ranks: ProcessGroup) -> dict[str, Tensor]:
    """Return this process's own tensors in a checkpoint of as many processes; none for the first, or another number."""
    if ranks.is_first or meta.get("processes", 1) != ranks.size:
        return {}
    return under(load_worlds(path, ranks.rank) or {}, OWN)


def read_replay(
    path: Path,
    meta: Mapping[str, Any],
    tensors: Mapping[str, Tensor],
    state: Mapping[str, Tensor],
    ranks: ProcessGroup,
    *,
    tell: Callable[[str], None],
) -> dict[str, Tensor]:
    """Return this process's replay memory in a checkpoint, empty if it was removed there; `tell` gets a line then.

    Args:
        path: the checkpoint.
        meta: its description.
        tensors: its tensors that were read; those of earlier versions have the memory among them.
        state: the state of the learner, which says whether there is such a memory.
        ranks: the processes that train together.
        tell: called with a line if the memory begins empty.
    """
    wanted = {name: tensor for name, tensor in state.items() if name.startswith(REPLAY)}
    if not wanted or any(name in tensors for name in wanted):
        return {}
    found = load_replay(path, ranks.rank if meta.get("processes", 1) == ranks.size else 0)
    if found is None:
        tell(f"checkpoint {path}: is without its replay memory, which was removed; it begins empty")
        return {name: torch.zeros_like(tensor, device="cpu") for name, tensor in wanted.items()}
    return found


def check_size(meta: Mapping[str, Any], num_envs: int, processes: int) -> None:
    """Raise UserError if a checkpoint's worlds or processes, in all, are not as many; `meta` describes it."""
    before, now = (meta.get("worlds", 0), meta.get("processes", 1)), (num_envs, processes)
    if before[0] and before != now:
        raise UserError(
            f"num_envs={now[0]} in {_processes(now[1])}: the run has {before[0]} in {_processes(before[1])}; continue "
            "with as many, or give allow_resize=true to divide its worlds again"
        )


def read_worlds(
    path: Path,
    meta: Mapping[str, Any],
    env: Any,
    live: Mapping[str, Tensor],
    ranks: ProcessGroup,
    *,
    allow_resize: bool,
    tell: Callable[[str], None],
) -> dict[str, Tensor]:
    """Return the saved state of this process's worlds, checked against the current ones; nothing is changed yet.

    The tensors have the names of `pack`; none if the worlds begin again. `allow_resize` divides them among another
    number of worlds or processes; `tell` gets a line if not every world continues. Raises UserError if the numbers
    differ and may not, or the state does not fit the environment.
    """
    size, count = num_worlds(env), meta.get("worlds", 0)
    before, now = (count, meta.get("processes", 1)), (size * ranks.size, ranks.size)
    if not count:
        tell(f"checkpoint {path}: holds no worlds, they begin again")
        return {}
    if not allow_resize:
        check_size(meta, *now)
    own = pack(env, live)
    if before == now:
        saved = load_worlds(path, ranks.rank) or {}
    else:
        parts = [load_worlds(path, rank) or {} for rank in range(before[1])]
        robots = int(getattr(env, "team_size", 1))
        first = ranks.rank * size
        saved = redistributed(parts, own, size=count // before[1], first=first, num_envs=size, robots=robots)
    complete: Any = getattr(env, "complete_worlds", None)
    if complete is not None:
        rest = {name: tensor for name, tensor in saved.items() if not name.startswith(ENV)}
        saved = rest | {f"{ENV}{name}": tensor for name, tensor in complete(under(saved, ENV)).items()}
    if not any(name.startswith(ENV) for name in saved):
        tell(f"checkpoint {path}: the environment could not save its worlds' state, they begin again")
    elif not has_state(env):
        tell(f"checkpoint {path}: this environment cannot load its worlds' state, they begin again")
        saved = {name: tensor for name, tensor in saved.items() if not name.startswith(ENV)}
    elif before != now:
        goes_on = min(before[0], now[0])
        tell(
            f"{before[0]} worlds in {_processes(before[1])} become {now[0]} in {_processes(now[1])}: "
            f"the first {goes_on} continue, {now[0] - goes_on} begin again"
        )
    _check_fit(path, saved, own)
    return saved


def num_worlds(env: Any) -> int:
    """Return the number of worlds of an environment, of which a team's have a row for each robot."""
    return int(getattr(env, "num_worlds", env.num_envs))


def redistributed(
    parts: Sequence[Mapping[str, Tensor]],
    own: Mapping[str, Tensor],
    *,
    size: int,
    first: int,
    num_envs: int,
    robots: int = 1,
) -> dict[str, Tensor]:
    """Return the rows of a process's worlds from those that `size` worlds of each process saved in `parts`.

    The process has `num_envs` worlds with the current state `own`, of which `first` is the index of the first among
    all; surplus worlds keep it. A tensor has a row for each world, or for each of its `robots`. One without is copied
    if its shape fits, and stays unchanged otherwise.
    """
    result = {}
    for name, mine in own.items():
        theirs = [part[name] for part in parts if name in part]
        if len(theirs) < len(parts):
            continue
        lengths = [tensor.shape[0] if tensor.ndim else 0 for tensor in (mine, theirs[0])]
        each = next((n for n in (1, robots) if lengths == [num_envs * n, size * n]), 0)
        is_rows = each > 0
        if is_rows and mine.shape[1:] == theirs[0].shape[1:]:
            rows = torch.cat(theirs)[first * each : (first + num_envs) * each]
            result[name] = torch.cat((rows, mine.cpu()[len(rows) :].to(rows.dtype)))
        elif not is_rows and mine.shape != theirs[0].shape and mine.shape[1:] == theirs[0].shape[1:]:
            result[name] = mine.cpu()
        else:
            result[name] = theirs[0]
    return result


def unpack(path: Path, saved: Mapping[str, Tensor], env: Any, live: Mapping[str, Tensor]) -> None:
    """Load the output of `read_worlds`; raise UserError, with the reason, if the environment refuses it."""
    state = under(saved, ENV)
    if state:
        try:
            env.load_state_dict(state)
        except (ValueError, KeyError) as error:
            raise UserError(f"checkpoint {path}: {error}; {FRESH}") from error
    for name, tensor in live.items():
        held = saved.get(f"{LIVE}{name}")
        if held is None:
            tensor.zero_()
        else:
            tensor.copy_(held)


def _check_fit(path: Path, saved: Mapping[str, Tensor], own: Mapping[str, Tensor]) -> None:
    """Raise UserError for a state of other worlds: those of another task, or another engine."""
    has_env = any(name.startswith(ENV) for name in saved)
    for name, mine in own.items():
        theirs = saved.get(name)
        if theirs is None:
            if has_env and name.startswith(ENV):
                raise UserError(f"checkpoint {path}: its worlds have no '{name}' {tuple(mine.shape)}; {FRESH}")
        elif theirs.shape != mine.shape or theirs.is_floating_point() != mine.is_floating_point():
            raise UserError(
                f"checkpoint {path}: '{name}' of its worlds has shape {tuple(theirs.shape)}, must be "
                f"{tuple(mine.shape)} here; {FRESH}"
            )


def _processes(count: int) -> str:
    return f"{count} process{'es' * (count > 1)}"
