"""The project in the working folder: the entry points that its pyproject.toml declares, found without an installation.

Only ./pyproject.toml counts, not one of a folder above, and only if it and the folder are this user's and not writable
by everybody: whoever writes there chooses the code that runs. Reading it imports nothing.
"""

import functools
import os
import re
import stat
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

FILE = "pyproject.toml"
MAX_BYTES = 2**20


@dataclass(frozen=True, slots=True)
class Project:
    """A project that need not be installed.

    Attributes:
        name: Its name as a distribution, normalized.
        groups: Target by name of the entry points of each group.
        folder: The folder of its packages, for `sys.path`; its "src" if there is one.
        problem: Why a pyproject.toml is not used; empty if it is, or if there is none.
    """

    name: str = ""
    groups: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    folder: str = ""
    problem: str = ""


def find_project() -> Project:
    """Return the project in the working folder; an empty one if there is none, or if it is not used."""
    try:
        folder = os.getcwd()
        of_folder, of_file = os.stat(folder), os.lstat(FILE)
    except OSError:
        return Project()
    if not stat.S_ISREG(of_file.st_mode) or of_file.st_size > MAX_BYTES:
        return Project()
    owners = (of_folder.st_uid, of_file.st_uid)
    is_open = bool((of_folder.st_mode | of_file.st_mode) & stat.S_IWOTH)
    return _read(folder, owners, is_open, of_file.st_mtime_ns, of_file.st_size)


@functools.lru_cache(maxsize=4)
def _read(folder: str, owners: tuple[int, int], is_open: bool, *_: int) -> Project:
    path = Path(folder, FILE)
    try:
        content = path.read_bytes()
    except OSError:
        return Project()
    if b"robot_rl." not in content:
        return Project()
    if set(owners) != {os.getuid()}:
        return Project(problem=f"{path} is not used: it or its folder belongs to another user")
    if is_open:
        return Project(problem=f"{path} is not used: everybody may write it or its folder")
    import tomllib

    try:
        project = tomllib.loads(content.decode())["project"]
        name, found = normalized(project["name"]), project.get("entry-points", {})
        groups = {group: {key: str(target) for key, target in found[group].items()} for group in found}
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
        return Project(problem=f"{path} is not used: it is damaged ({' '.join(str(error).split())})")
    groups = {group: entries for group, entries in groups.items() if group.startswith("robot_rl.")}
    source = Path(folder, "src")
    return Project(name, groups, str(source if source.is_dir() else folder))


def normalized(name: str) -> str:
    """Return the name of a distribution as indexes compare it."""
    return re.sub(r"[-_.]+", "-", name).lower()
