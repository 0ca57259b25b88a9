"""Finds the mesh files of a URDF in the package that it belongs to, and says which files MuJoCo does not read."""

from __future__ import annotations

import os
import re
import xml.etree.ElementTree as ET
from pathlib import Path

MESHES = (".obj", ".stl", ".msh")
"""Files of meshes that MuJoCo reads."""
LFS = b"version https://git-lfs"
"""What a file begins with of which Git has only the name."""
MOST_FACES = 200_000
"""Most triangles of an .stl that MuJoCo reads."""
MODEL_FOLDERS = ("urdf", "xacro", "robots", "xml", "mjcf", "model", "models", "description")
"""Names of folders that hold the models of a package; its meshes are in folders next to them."""
DEEPEST, MOST_ENTRIES = 6, 20_000
"""How deep, and among how many files and folders, a mesh is searched for in its package."""


def number_meshes(root: ET.Element, path: Path) -> dict[str, str]:
    """Give every mesh of a URDF a file name of its own; return by it the file, wherever it lies around the URDF.

    MuJoCo takes meshes of one name in two folders for the same. A name is package://name/path, relative or absolute.
    """
    files: dict[str, str] = {}
    names: dict[str, str] = {}
    for mesh in root.iter("mesh"):
        own = str(mesh.get("filename"))
        if own not in names:
            plain, count = Path(own.replace("\\", "/")), 1
            short = plain.name
            while short in files:
                count += 1
                short = f"{plain.stem}_{count}{plain.suffix}"
            names[own], files[short] = short, str(_find_mesh(own, path))
        mesh.set("filename", names[own])
    return files


def mesh_fault(path: Path) -> str:
    """Return why MuJoCo would not read a mesh, and what would be right; empty for one that it reads or that is missing.

    An .stl is 80 bytes, the number of triangles, and 50 bytes for each; one in letters begins with `solid`.
    """
    kind = path.suffix.lower()
    if kind not in MESHES:
        return f"is a {kind or 'file without a suffix'}, which MuJoCo does not read; make it an .obj or .stl"
    if not path.is_file():
        return ""
    size = path.stat().st_size
    with path.open("rb") as stream:
        head = stream.read(84)
    if not size:
        return "is an empty file; put the mesh there"
    if head.startswith(LFS):
        return "is a pointer of Git LFS, not the mesh; fetch it with git lfs pull"
    if kind != ".stl":
        return ""
    faces = int.from_bytes(head[80:84], "little")
    if head.lstrip()[:5].lower() == b"solid" and size != 84 + 50 * faces:
        return "is an .stl in letters, which MuJoCo does not read; save it as a binary .stl"
    if faces > MOST_FACES:
        return f"has {faces} triangles, {MOST_FACES} are the most; reduce it"
    return ""


def _find_mesh(name: str, path: Path) -> Path:
    """Return the file of a URDF's mesh: where its name says, else that of its package with the longest common ending.

    A file of another package around is taken only where the name says that package.
    """
    own = Path(re.sub(r"^(package|file|model)://", "", name.replace("\\", "/")))
    package = _package(path)
    for folder in (path.parent, *path.parent.resolve().parents[:6]):
        if (folder / own).is_file():
            return (folder / own).resolve()
    if len(own.parts) > 1 and (package / Path(*own.parts[1:])).is_file():
        return (package / Path(*own.parts[1:])).resolve()

    def common(found: Path) -> int:
        pairs = zip(reversed(found.parts), reversed(own.parts), strict=False)
        return next((k for k, (one, two) in enumerate(pairs) if one != two), len(own.parts))

    around = sorted(_files_below(package, own.name), key=common)
    return around[-1] if around else (path.parent / own).resolve()


def _package(path: Path) -> Path:
    """Return the folder of a URDF's package: that of a package.xml, else its own or the one above urdf/."""
    folder = path.resolve().parent
    for above in (folder, *folder.parents[:4]):
        if (above / "package.xml").is_file():
            return above
    return folder.parent if folder.name.lower() in MODEL_FOLDERS else folder


def _files_below(folder: Path, name: str) -> list[Path]:
    """Return the plain files of a name below a folder: at most so deep, and of so many entries, as packages are."""
    found, seen = [], 0
    for at, folders, files in os.walk(folder):
        seen += len(folders) + len(files)
        if seen > MOST_ENTRIES:
            break
        if len(Path(at).relative_to(folder).parts) >= DEEPEST:
            folders.clear()
        if name in files and (Path(at) / name).is_file():
            found.append(Path(at) / name)
    return found
