"""Settings of an environment of Isaac Lab by dotted name, and the files that they refer to."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from robot_rl.errors import UnknownKeyError, UserError, suggest

OWN_ASSETS = Path(__file__).parent / "assets"
"""What comes with the project: a cart-pole and a ground."""
GROUND = "default_ground_plane"
SUFFIXES = (".usd", ".usda", ".usdc")
REMOTE = ("http://", "https://", "omniverse://", "s3://")


def find(cfg: Any, path: str) -> tuple[Any, str, Any]:
    """Return the holder of a setting, the last part of its name, and its value.

    Args:
        cfg: An environment's configuration.
        path: Dotted name, such as "rewards.alive.weight".
    """
    *parents, last = path.split(".")
    node, walked = cfg, "env"
    for part in (*parents, last):
        known = children(node)
        if part not in known:
            hint = suggest(part, known) if known else "it has no settings"
            raise UnknownKeyError(f"env.{path}", f"{walked} has no '{part}'; {hint}")
        holder, node = node, known[part]
        walked += f".{part}"
    return holder, last, node


def children(node: Any) -> dict[str, Any]:
    """Return the settings in a part of a configuration, by name; empty if it is a value."""
    if isinstance(node, Mapping):
        return {str(key): value for key, value in node.items()}
    if hasattr(node, "__dataclass_fields__"):
        names = dict.fromkeys((*node.__dataclass_fields__, *getattr(node, "__dict__", {})))
        return {name: getattr(node, name) for name in names if not name.startswith("_") and hasattr(node, name)}
    return {}


def model(cfg: Any, path: str) -> Any:
    """Return a value of a setting's type: a configuration may have 5 although a fraction is also meant."""
    holder, last, value = find(cfg, path)
    if isinstance(value, bool) or not isinstance(value, int):
        return value
    annotations = [str(vars(kind).get("__annotations__", {}).get(last, "")) for kind in type(holder).__mro__]
    return float(value) if isinstance(holder, Mapping) or any("float" in text for text in annotations) else value


def put(cfg: Any, path: str, value: Any) -> None:
    """Set a setting.

    Raises:
        UserError: There is no such setting, or it is a group of them, not a value (only null omits a group).
    """
    holder, last, old = find(cfg, path)
    if children(old) and value is not None:
        raise UserError(f"env.{path}={value!r}: is a group; set one of {', '.join(list(children(old))[:20])}, or null")
    if isinstance(holder, dict):
        holder[last] = value
    else:
        setattr(holder, last, value)


def plain(value: Any) -> Any:
    """Return a value as YAML can represent it; None if it cannot."""
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, tuple | list):
        return [plain(item) for item in value]
    return None


def localize(cfg: Any, folder: Path | None, exists: Callable[[str], bool], name: str) -> None:
    """Replace every USD file of the scene by a local one where necessary, or check that it is available.

    Args:
        cfg: An environment's configuration; its paths are changed.
        folder: Where to look, by a path's end or a file's name; None: nowhere.
        exists: Whether a file of Isaac Lab's store is available.
        name: The task.

    Raises:
        UserError: A file is neither local nor available.
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
    """Return the local file for a path of the store: in a folder, or our ground if theirs is not available.

    Args:
        path: The path.
        folder: Where to look; None: nowhere.
        exists: Whether a file of Isaac Lab's store is available.
    """
    local = find_file(path, folder) if folder else None
    if local is None and GROUND in path and (folder or not exists(path)):
        return find_file(path, OWN_ASSETS)
    return local


def _missing(path: str, folder: Path | None, name: str) -> str:
    file = path.rpartition("/")[2]
    hint = ", or assets=own, the cart-pole that comes with the project" if find_file(path, OWN_ASSETS) else ""
    tried = f" nor in assets={folder}" if folder else ""
    return (
        f"task={name}: {path} is not available here (offline?){tried}; put {file} into a folder and give "
        f"assets=<folder>{hint}"
    )


def find_file(path: str, folder: Path) -> Path | None:
    """Return the file in a folder for a path of the store: the one that shares the longest end of the path."""
    parts = path.partition("://")[2].split("/") if "://" in path else path.split("/")
    for start in range(len(parts)):
        stem = folder.joinpath(*parts[start:])
        for file in (stem, *(stem.with_suffix(suffix) for suffix in SUFFIXES)):
            if file.is_file():
                return file.resolve()
    return None


def walk(node: Any, seen: set[int] | None = None) -> Iterator[Any]:
    """Yield every part of a configuration that has settings, except markers in images."""
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
