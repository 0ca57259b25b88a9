"""Convert a task to a tree of plain values that can be overridden by name, and back.

Term entries show their options next to their parameters: `rewards.track` is `{weight: 1.0, std: 0.5}`. Functions, the
robot and the task's presets are not part of the tree.
"""

import dataclasses
import math
import re
from collections.abc import Collection, Iterator, Mapping
from typing import Any, TypeVar

from robot_rl.errors import UnknownKeyError, UserError, nearest, suggest
from robot_rl.settings.schema import from_dict, not_a_value, require_known, scalar, to_dict
from robot_rl.settings.words import REMOVED, leaf_names, refuse_twice

T = TypeVar("T")
# Fields of a task that identify it, or that are read before the tree is made.
NOT_IN_TREE = (
    *("name", "summary", "robot", "num_envs", "solved", "deployable"),
    *("learner", "learner_cpu", "learner_name", "presets"),
)
OF_TEAMS = ("robots", "roles", "team", "messages")
"""Fields of a task that only one with several robots has."""
_HIDDEN = object()
MAX_FLOAT = 3.4e38
"""Largest size of a number of a task: its kernels compute in float32."""
ALIASES = {
    **dict.fromkeys(("n_envs", "num_worlds"), "num_envs"),
    **dict.fromkeys(("n_steps", "num_steps_per_env", "rollout_length"), "num_steps"),
    **dict.fromkeys(("total_timesteps", "num_iterations", "iterations"), "max_iterations"),
    **dict.fromkeys(("n_epochs", "update_epochs", "num_learning_epochs"), "epochs"),
    **dict.fromkeys(("num_minibatches", "num_mini_batches"), "minibatches"),
    **dict.fromkeys(("clip_range", "clip_coef", "clip_param"), "clip"),
    **dict.fromkeys(("vf_coef", "value_loss_coef"), "value_coef"),
    **dict.fromkeys(("net_arch", "hidden_dims", "actor_hidden_dims"), "hidden"),
    "gae_lambda": "lam",
    "ent_coef": "entropy_coef",
    "target_kl": "desired_kl",
    "lr": "learning_rate",
}
"""Names of settings in Stable-Baselines3, rsl_rl and CleanRL, and ours, for suggestions."""


def task_tree(task: Any) -> dict[str, Any]:
    """Return everything of a task that may be overridden, as nested dicts of numbers, words, flags and lists."""
    shown = {name: value for name, value in _fields(task).items() if name not in _not_in_tree(task)}
    return {name: tree for name in shown if (tree := _to_tree(shown[name])) is not _HIDDEN}


def _not_in_tree(task: Any) -> tuple[str, ...]:
    return NOT_IN_TREE if getattr(task, "robots", None) else (*NOT_IN_TREE, *OF_TEAMS)


def apply_tree(task: Any, tree: Mapping[str, Any]) -> Any:
    """Return a copy of the task with the values of `tree`; a term that `tree` lacks is omitted from the copy."""
    require_known(tree, task_tree(task), "")
    changes = {name: _apply(getattr(task, name), part, name) for name, part in tree.items()}
    if "metrics" in changes and task.solved and task.solved[0].removeprefix("tracking/") not in changes["metrics"]:
        changes["solved"] = None  # The user removed the metric that it is about.
    return _rebuild("task", lambda: dataclasses.replace(task, **changes))


def override(tree: Mapping[str, Any], changes: Mapping[str, Any], optional: Collection[str] = ()) -> dict[str, Any]:
    """Return a copy of a tree with values replaced, and settings removed, by dotted name.

    Args:
        tree: The tree.
        changes: Values by dotted name, from `robot_rl.settings.words.read_changes`.
        optional: The dotted names that may be removed.

    Raises:
        UserError: A name that the tree does not have (the nearest is offered), no value of a group, one given twice, or
            one removed that the task requires.
    """
    refuse_twice((leaf, f"{name}={value}") for name, value in changes.items() for leaf in leaf_names(name, value))
    result = copy_tree(tree)
    for name, value in changes.items():
        require_key(tree, name)
        *parents, last = name.split(".")
        node = result
        for part in parents:
            node = node[part]
        if value is REMOVED:
            require_removable(name, optional)
            del node[last]
        else:
            node[last] = _merged(node[last], value, name)
    return result


def apply_overrides(cfg: T, changes: Mapping[str, Any]) -> T:
    """Return a copy of a dataclass of settings with values replaced, by dotted name such as "ppo.learning_rate".

    Raises UserError for an unknown key (with the nearest known one) or an invalid value.
    """
    return from_dict(type(cfg), override(to_dict(cfg), changes))


def require_removable(name: str, optional: Collection[str]) -> None:
    """Raise UserError if `~name` would remove something not in `optional`: a whole group, or a single value."""
    if name not in optional:
        inside = [part for part in sorted(optional) if part.rpartition(".")[0] == name]
        right = f"omit its parts, such as ~{' ~'.join(inside[:3])}" if inside else "omit the ~ and give a value"
        raise UserError(f"~{name}: can be changed but not omitted; {right}")


def _merged(old: Any, value: Any, path: str) -> Any:
    """Return `old` with the values of `value`; a group keeps what `value` does not name."""
    if not isinstance(old, dict) or not old:
        if isinstance(value, Mapping) and old is not None and not isinstance(old, dict):
            raise UserError(path, value, "is not a group", f"give one value, such as {path}={old}")
        return value
    if not isinstance(value, Mapping) or not value:
        raise not_a_value(path, value, old)
    require_known(value, old, f"{path}.")
    return {**old, **{key: _merged(old[key], part, f"{path}.{key}") for key, part in value.items()}}


def named_parts(task: Any) -> set[str]:
    """Return the dotted names of the optional parts of a task: rewards, events, observations, kinds of tiles."""
    found: set[str] = set()

    def walk(value: Any, path: str) -> None:
        if isinstance(value, Mapping):
            found.update(f"{path}.{name}" for name in value)
        elif not dataclasses.is_dataclass(value) or isinstance(value, type):
            return
        for name, part in (value if isinstance(value, Mapping) else _fields(value)).items():
            walk(part, f"{path}.{name}")

    for name, value in _fields(task).items():
        if name not in (*_not_in_tree(task), "robots"):
            walk(value, name)
    return found


def require_key(tree: Mapping[str, Any], name: str) -> None:
    """Raise UserError, with the nearest key, for a dotted name that is not a key of `tree`."""
    node: Any = tree
    for part in name.split("."):
        if not isinstance(node, Mapping) or part not in node:
            raise UnknownKeyError(name, _nearest(name, tree))
        node = node[part]


def dotted_keys(tree: Mapping[str, Any], prefix: str = "") -> Iterator[str]:
    """Yield the dotted names of all values and groups of a tree."""
    for key, value in tree.items():
        yield f"{prefix}{key}"
        if isinstance(value, Mapping):
            yield from dotted_keys(value, f"{prefix}{key}.")


def leaves(tree: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yield the values of a tree by dotted name."""
    for key, value in tree.items():
        if isinstance(value, Mapping):
            yield from leaves(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value


def copy_tree(tree: Mapping[str, Any]) -> dict[str, Any]:
    """Return a copy with its own groups."""
    return {key: copy_tree(value) if isinstance(value, Mapping) else value for key, value in tree.items()}


def _nearest(name: str, tree: Mapping[str, Any]) -> str:
    """Return a suggestion: each part of the name as the group has it, or the keys of the group that has none near.

    A name without its group is the learner's own setting, if that has one of this name, else that of the first group.
    """
    own = ALIASES.get(name.rpartition(".")[2], "" if "." in name else name)
    if found := [key for key in dotted_keys(tree) if own and key.rpartition(".")[2] == own]:
        groups = (tree.get("learner"), "ppo")
        best = min(found, key=lambda key: (key.partition(".")[0] not in groups, key.count("."), found.index(key)))
        return f"did you mean '{best}'?"
    node: Any = tree
    right: list[str] = []
    for part in name.split("."):
        if not isinstance(node, Mapping):
            break
        near = part if part in node else nearest(part, node)
        if right and not near:
            return suggest("", node)
        if not near or "." not in name:
            return suggest(name, dotted_keys(tree) if nearest(name, dotted_keys(tree)) else tree)
        right.append(near)
        node = node[near]
    return f"did you mean '{'.'.join(right)}'?"


def _is_term(value: Any) -> bool:
    """Return whether a value is a term entry: a function with parameters (and options as attributes)."""
    return callable(getattr(value, "fn", None)) and isinstance(getattr(value, "params", None), dict)


def _term_options(term: Any) -> dict[str, Any]:
    return {name: value for name, value in vars(term).items() if name not in ("fn", "params", "kind")}


def _fields(value: Any) -> dict[str, Any]:
    """Return a dataclass's fields that may be set, by name: all but those marked otherwise, such as a robot's facts."""
    return {
        field.name: getattr(value, field.name)
        for field in dataclasses.fields(value)
        if field.init and field.metadata.get("setting", True)
    }


def _to_tree(value: Any) -> Any:
    """Return the plain values of `value`, _HIDDEN if there are none."""
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, tuple | list):
        items = [_to_tree(item) for item in value]
        return _HIDDEN if any(item is _HIDDEN for item in items) else items
    if not getattr(value, "setting", True):
        return _HIDDEN
    if _is_term(value):
        return {**{name: _to_tree(option) for name, option in _term_options(value).items()}, **value.params}
    if isinstance(value, Mapping):
        parts = value
    elif dataclasses.is_dataclass(value) and not isinstance(value, type):
        parts = _fields(value)
    else:
        return _HIDDEN
    trees = {name: _to_tree(part) for name, part in parts.items()}
    return {name: tree for name, tree in trees.items() if tree is not _HIDDEN}


def _apply(value: Any, tree: Any, path: str) -> Any:
    """Return `value` with the values of `tree`, which has the shape of `_to_tree(value)`."""
    known = _to_tree(value)
    if not isinstance(known, dict):
        return coerce(value, tree, path, MAX_FLOAT)
    if not isinstance(tree, Mapping):
        raise not_a_value(path, tree, known)
    require_known(tree, known, f"{path}.")
    if _is_term(value):
        set_to = {name: tree.get(name, old) for name, old in known.items()}
        options = {name: _apply(old, set_to[name], f"{path}.{name}") for name, old in _term_options(value).items()}
        params = {name: _param(value, name, old, set_to[name], path) for name, old in value.params.items()}
        return _rebuild(path, lambda: type(value)(value.fn, **options, **params))
    if isinstance(value, Mapping):
        kept = {name: part for name, part in value.items() if name in tree or name not in known}
        return {name: _apply(kept[name], tree[name], f"{path}.{name}") if name in tree else kept[name] for name in kept}
    changes = {name: _apply(getattr(value, name), part, f"{path}.{name}") for name, part in tree.items()}
    return _rebuild(path, lambda: dataclasses.replace(value, **changes))


def _param(term: Any, name: str, old: float | str, new: Any, path: str) -> Any:
    """Return a term's parameter: a number, or the name of a body or joint, which the term itself checks."""
    named = isinstance(new, str) and name in getattr(term, "named", ())
    return new if named or isinstance(old, str) else coerce(float(old), new, f"{path}.{name}", MAX_FLOAT)


def _rebuild(path: str, make: Any) -> Any:
    """Call a constructor; its error gets the path of the built object, unless it names it itself."""
    try:
        return make()
    except ValueError as error:
        raise UserError(_with_path(path, str(error))) from None


def _with_path(path: str, line: str) -> str:
    """Return an error line about `path`, with that path in the name of the field that it begins with."""
    parent, _, field = path.rpartition(".")
    if path == "task" or line.startswith((f"{path}.", f"{path}=")):
        return line
    if line.startswith((f"{field}.", f"{field}=")):
        return f"{parent}.{line}"
    return f"{path}.{line}" if re.match(r"[a-z]\w*=", line) else f"{path}: {line}"


def coerce(old: Any, new: Any, path: str, most: float = math.inf) -> Any:
    """Return `new`, a plain value, as a value of the type of `old`.

    Raises UserError for another type, or a number that is not finite or larger than `most` in size.
    """
    if isinstance(old, tuple | list):
        if not isinstance(new, tuple | list) or (old and len(new) != len(old)):
            raise UserError(path, new, f"must be a list of {len(old)}")
        items = [coerce(old[i], item, f"{path}[{i}]", most) if old else item for i, item in enumerate(new)]
        return type(old)(items)
    if not isinstance(old, bool | int | float | str):
        return new
    value = scalar(type(old), new, path, finite=True)
    if isinstance(old, float) and abs(value) > most:
        raise UserError(path, new, f"must be at most {most:.2g} in size")
    return value
