"""Checks of a robot's file, and of those that it includes, before anything reads them.

Such a file is often somebody else's. MuJoCo follows an include of itself until it crashes, waits for a pipe, and treats
a limit that is not a number as none; and names of bodies and joints become text in Python files.
"""

from __future__ import annotations

import io
import math
import xml.etree.ElementTree as ET
from collections.abc import Iterator
from pathlib import Path

from robot_rl.errors import UserError
from robot_rl.files import read_plain

MOST_BYTES = 2**26
"""Largest file [bytes]."""
MOST_NESTED = 250
"""Most elements inside each other, and links below each other."""
MOST_FILES = 200
"""Most files that a model includes or attaches, counted as often as they are."""
MOST = 1e9
"""Greatest magnitude of a number, in any unit."""
NAMED = ("body", "joint", "freejoint", "geom", "site", "link")
"""Elements whose names become text in files of this project."""
FORBIDDEN = "\"'\\"
WORDS = frozenset(
    {"name", "class", "childclass", "model", "prefix", "file", "filename", "content_type", "data", "value", "params"}
)
"""Attributes that are text, even if it looks like a number; `value` is one of an element not listed in NUMBERS."""
NUMBERS = {
    "limit": ("lower", "upper", "effort", "velocity"),
    "mimic": ("multiplier", "offset"),
    "mass": ("value",),
    "inertia": ("ixx", "iyy", "izz", "ixy", "ixz", "iyz"),
}
"""Attributes of a URDF that are read as numbers here, by element; MuJoCo checks the others, and names their line."""
WIDE = (b"\xff\xfe", b"\xfe\xff")
"""Marks at the beginning of UTF-16, in which zeros belong to the text."""


def check_file(path: Path) -> tuple[ET.Element, list[Path]]:
    """Check a model of MuJoCo's or a URDF, and every file that it names.

    Returns:
        The root of the file itself, and the folders of the models that it attaches, also through its includes.

    Raises:
        UserError: A file is not a plain file, is too large, is not XML, is nested too deeply or includes itself; a
            number is invalid, not finite or too large; a name has quotes, a backslash or control characters.
    """
    count, roots, attached = 0, [], []
    waiting: list[tuple[Path, tuple[Path, ...]]] = [(path.resolve(), ())]
    while waiting:
        file, above = waiting.pop()
        count += 1
        if count > MOST_FILES:
            raise UserError("from", path, f"includes more than {MOST_FILES} files")
        if file in above:
            raise UserError("from", path, f"{file} includes itself")
        root = _parse(path, file)
        roots.append(root)
        for parent in root.iter():
            for element in parent:
                _check_element(path, element, _called(parent), is_urdf=root.tag == "robot")
        if root.tag == "robot":
            _check_chain(path, root)
        folders = dict.fromkeys((path.resolve().parent, file.parent))
        for kind, named in _named_files(root, tuple(folders)):
            try:
                is_odd = named.exists() and not named.is_file() and not named.is_dir()
            except OSError as error:  # Such as a name that is too long.
                line = f"{_shown(named.name)}: {(error.strerror or str(error)).lower()}"
                raise UserError("from", path, f"a file that it names cannot be there: {line}") from None
            if is_odd:
                raise UserError("from", path, f"{named} is a pipe or a device, must be a plain file")
            if kind in ("include", "model") and named.is_file():
                waiting.append((named.resolve(), (*above, file)))
                attached += [named.resolve().parent] if kind == "model" else []
    return roots[0], list(dict.fromkeys(attached))


def _parse(path: Path, file: Path) -> ET.Element:
    """Return the root of an XML file that is not nested too deeply."""
    depth, root = 0, None
    content = read_plain(file, MOST_BYTES)
    if not content.startswith(WIDE):
        content = content.strip(b" \t\r\n\0")
    try:
        for event, element in ET.iterparse(io.BytesIO(content), ("start", "end")):
            depth += 1 if event == "start" else -1
            root = element if root is None else root
            if depth > MOST_NESTED:
                raise UserError("from", path, f"{file.name} has more than {MOST_NESTED} elements inside each other")
    except (ET.ParseError, LookupError, ValueError) as error:
        if isinstance(error, UserError):
            raise
        where = "" if file == path.resolve() else f" in {file}"
        raise UserError("from", path, f"XML parse error{where}: {' '.join(str(error).split())}") from None
    if root is None:
        raise UserError("from", path, f"{file.name} is empty")
    try:  # A URDF is written again before MuJoCo reads it.
        content.decode("latin-1" if root.tag == "robot" else "utf-8")
    except UnicodeDecodeError:
        raise UserError("from", path, f"{file.name} is not UTF-8, which MuJoCo needs; write it as UTF-8") from None
    return root


def _check_element(path: Path, element: ET.Element, inside: str, *, is_urdf: bool) -> None:
    tag = str(element.tag)
    if "xacro" in tag:
        raise UserError("from", path, "has elements of xacro; write its expansion: xacro FILE > robot.urdf")
    own = _called(element)
    where = f"from={path}: <{tag}{own}>{f' of{inside}' if inside and not own else ''}"
    bad = [c for c in element.get("name", "") if not c.isprintable() or (tag in NAMED and c in FORBIDDEN)]
    if bad:
        raise UserError(f"{where}: its name has {bad[0]!r}; use letters, digits and _ - . /")
    required = NUMBERS.get(tag, ()) if is_urdf else ()
    for key, text in element.attrib.items():
        try:
            numbers = [float(token) for token in text.split()]
        except ValueError:
            numbers = None
        if key in required and (numbers is None or len(numbers) != 1):
            if "${" in text:
                raise UserError(f"{where}: {key}={text[:80]}: is of xacro; write its expansion")
            raise UserError(f"{where}: {key}='{_shown(text)}': must be a number")
        if numbers is None or (key in WORDS and key not in required):
            continue
        if not all(math.isfinite(number) and abs(number) <= MOST for number in numbers):
            raise UserError(f"{where}: {key}='{_shown(text)}': must be finite, and at most {MOST:g}")


def _called(element: ET.Element) -> str:
    name = element.get("name")
    return f" '{_shown(name)}'" if name else ""


def _shown(text: str) -> str:
    """Return the beginning of a text of the file for a line of ours."""
    return "".join(c if c.isprintable() else "?" for c in text[:60])


def _check_chain(path: Path, root: ET.Element) -> None:
    """Refuse links in a circle, and chains of too many."""
    above: dict[str, str] = {}
    for joint in root.findall("joint"):
        parent, child = joint.find("parent"), joint.find("child")
        if parent is not None and child is not None:
            above[str(child.get("link"))] = str(parent.get("link"))
    for link in above:
        chain = [link]
        while (parent := above.get(chain[-1])) is not None:
            if len(chain) > MOST_NESTED:
                ring = "links in a circle" if parent in chain else f"more than {MOST_NESTED} links below each other"
                raise UserError("from", path, f"there are {ring}, at link '{_shown(link)}'")
            chain.append(parent)


def _named_files(root: ET.Element, folders: tuple[Path, ...]) -> Iterator[tuple[str, Path]]:
    """Yield (element, file) of each file that a document may mean."""
    own = {str(element.get(key)) for element in root.iter("compiler") for key in ("meshdir", "texturedir", "assetdir")}
    for element in root.iter():
        for key, text in element.attrib.items():
            if not (key.startswith("file") and text) or "\0" in text:
                continue
            for folder in folders:
                for inner in ("", *(own - {"None"})):
                    yield str(element.tag), folder / inner / text.removeprefix("file://")
