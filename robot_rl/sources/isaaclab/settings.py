"""Settings of an environment of Isaac Lab by dotted name, and the files that they point to."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from robot_rl.errors import UserError, suggest

OWN_ASSETS = Path(__file__).parent / "assets"
"""What comes with the project: a cart-pole and a ground."""
GROUND = "default_ground_plane"
SUFFIXES = (".usd", ".usda", ".usdc")
REMOTE = ("http://", "https://", "omniverse://", "s3://")


def find(cfg: Any, path: str) -> tuple[Any, str, Any]:
    """Where a setting is.

    Args:
        cfg: an environment's configuration.
        path: dotted name, such as "rewards.alive.weight".

    Returns:
        What holds it, the last part of the name, and its value.

    Raises:
        UserError: there is no such setting; the line offers the nearest.
    """
    *parents, last = path.split(".")
    node, walked = cfg, "env"
    for part in (*parents, last):
        known = children(node)
        if part not in known:
            hint = suggest(part, known) if known else "it has no settings"
            raise UserError(f"unknown key 'env.{path}': {walked} has no '{part}'; {hint}")
        holder, node = node, known[part]
        walked += f".{part}"
    return holder, last, node


def children(node: Any) -> dict[str, Any]:
    """The settings that a part of a configuration holds, by name; none where it is a value."""
    if isinstance(node, Mapping):
        return {str(key): value for key, value in node.items()}
    if hasattr(node, "__dataclass_fields__"):
        names = dict.fromkeys((*node.__dataclass_fields__, *getattr(node, "__dict__", {})))
        return {name: getattr(node, name) for name in names if not name.startswith("_") and hasattr(node, name)}
    return {}


def model(cfg: Any, path: str) -> Any:
    """A value of the type that a setting has: a configuration may say 5 where a fraction is meant as well.

    Raises:
        UserError: there is no such setting.
    """
    holder, last, value = find(cfg, path)
    if isinstance(value, bool) or not isinstance(value, int):
        return value
    said = [str(vars(kind).get("__annotations__", {}).get(last, "")) for kind in type(holder).__mro__]
    return float(value) if isinstance(holder, Mapping) or any("float" in words for words in said) else value


def put(cfg: Any, path: str, value: Any) -> None:
    """Set a setting.

    Raises:
        UserError: there is no such setting, or it is no value but a group of them (which null alone leaves out).
    """
    holder, last, old = find(cfg, path)
    if children(old) and value is not None:
        raise UserError(f"env.{path}={value!r}: is a group; set one of {', '.join(list(children(old))[:20])}, or null")
    if isinstance(holder, dict):
        holder[last] = value
    else:
        setattr(holder, last, value)


def plain(value: Any) -> Any:
    """A value as YAML can hold it; None for what it cannot."""
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, tuple | list):
        return [plain(item) for item in value]
    return None


def localize(cfg: Any, folder: Path | None, exists: Callable[[str], bool], name: str) -> None:
    """Point every USD file of the scene to a local one, where it has to be, or see that it can be had.

    Args:
        cfg: an environment's configuration; its paths are changed.
        folder: where to look, by a path's end or a file's name; None: nowhere.
        exists: whether a file of Isaac Lab's store can be had.
        name: the task.

    Raises:
        UserError: a file is neither here nor to be had.
    """
    for holder in walk(getattr(cfg, "scene", cfg)):
        path = getattr(holder, "usd_path", None)
        if not isinstance(path, str) or Path(path).is_file():
            continue
        if (local := local_file(path, folder, exists)) is not None:
            holder.usd_path = str(local)
        elif not path.startswith(REMOTE) or not exists(path):
            raise UserError(_missing(path, folder, name))


def local_file(path: str, folder: Path | None, exists: Callable[[str], bool]) -> Path | None:
    """The file that stands for a path of the store: in a folder, or our ground where theirs is out of reach.

    Args:
        path: the path.
        folder: where to look; None: nowhere.
        exists: whether a file of Isaac Lab's store can be had.
    """
    found = find_file(path, folder) if folder else None
    if found is None and GROUND in path and (folder or not exists(path)):
        return find_file(path, OWN_ASSETS)
    return found


def _missing(path: str, folder: Path | None, name: str) -> str:
    file = path.rpartition("/")[2]
    own = ", or assets=own, the cart-pole that comes with the project" if find_file(path, OWN_ASSETS) else ""
    tried = f" nor in assets={folder}" if folder else ""
    return (
        f"task={name}: {path} is not to be had here (offline?){tried}; put {file} into a folder and give "
        f"assets=<folder>{own}"
    )


def find_file(path: str, folder: Path) -> Path | None:
    """The file in a folder that stands for a path of the store: by as much of the path's end as is there."""
    parts = path.partition("://")[2].split("/") if "://" in path else path.split("/")
    for start in range(len(parts)):
        stem = folder.joinpath(*parts[start:])
        for file in (stem, *(stem.with_suffix(suffix) for suffix in SUFFIXES)):
            if file.is_file():
                return file.resolve()
    return None


def walk(node: Any, seen: set[int] | None = None) -> Iterator[Any]:
    """Every part of a configuration that holds settings, but for marks in pictures."""
    seen = set() if seen is None else seen
    if id(node) in seen:
        return
    seen.add(id(node))
    known = children(node)
    if known:
        yield node
    for item in node if isinstance(node, list | tuple) else [known[name] for name in known if "visualizer" not in name]:
        if isinstance(item, list | tuple) or children(item):
            yield from walk(item, seen)
