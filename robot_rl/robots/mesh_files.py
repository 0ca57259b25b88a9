"""Finds the mesh files of a robot, those of a URDF in its package, and checks which ones MuJoCo reads."""

from __future__ import annotations

import os
import re
import xml.etree.ElementTree as ET
from pathlib import Path

from robot_rl.errors import UserError
from robot_rl.robots.parts import Source, free_file, remove_all

MESHES = (".obj", ".stl", ".msh")
"""Files of meshes that MuJoCo reads."""
LFS = b"version https://git-lfs"
"""Beginning of a file that Git has only the name of."""
MOST_FACES = 200_000
"""Most triangles of an .stl that MuJoCo reads."""
MODEL_FOLDERS = ("urdf", "xacro", "robots", "xml", "mjcf", "model", "models", "description")
"""Names of folders that hold the models of a package; its meshes are in folders next to them."""
DEEPEST, MOST_ENTRIES = 6, 20_000
"""How deep, and among how many files and folders, a mesh is searched for in its package."""


def number_meshes(root: ET.Element, path: Path) -> dict[str, str]:
    """Give every mesh of a URDF its own file name; return name -> file, wherever it lies around the URDF.

    MuJoCo takes meshes of one name in two folders for the same. A name is package://name/path, relative or absolute.
    """
    files: dict[str, str] = {}
    names: dict[str, str] = {}
    for mesh in root.iter("mesh"):
        own = str(mesh.get("filename"))
        if own not in names:
            names[own] = free_file(Path(own.replace("\\", "/")), files)
            files[names[own]] = str(_find_mesh(own, path))
        mesh.set("filename", names[own])
    return files


def mesh_fault(path: Path) -> str:
    """Return why MuJoCo would not read a mesh, and the correction; empty for one that it reads or that is missing.

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


def locate_meshes(source: Source) -> None:
    """Write each mesh's own path into it, and remove meshes that are only seen and that MuJoCo does not read.

    A mesh of an attached model is in that model's folder.

    Raises:
        UserError: a mesh may be any of several files.
    """
    spec = source.spec
    for mesh in spec.meshes:
        if mesh.file:
            mesh.name = mesh.name or Path(mesh.file).stem
            paths = [(folder / mesh.compiler.meshdir / mesh.file).resolve() for folder in source.folders]
            there = {path.read_bytes(): path for path in paths if path.is_file()}
            if len(there) > 1:
                line = f"mesh '{mesh.name}' may be any of {', '.join(map(str, there.values()))}"
                raise UserError("from", source.path, f"{line}; give the files different names")
            mesh.file = str(next(iter(there.values()), paths[0] if paths else mesh.file))
    spec.meshdir, spec.strippath = "", False
    touching = {geom.meshname for geom in spec.geoms if geom.contype or geom.conaffinity}
    faults = {mesh.name: mesh_fault(Path(mesh.file)) for mesh in spec.meshes if mesh.file}
    seen_only = {name: fault for name, fault in faults.items() if fault and name not in touching}
    remove_all(spec, [geom for geom in spec.geoms if geom.meshname in seen_only])
    remove_all(spec, [mesh for mesh in spec.meshes if mesh.name in seen_only])
    for fault in dict.fromkeys(seen_only.values()):
        count = list(seen_only.values()).count(fault)
        source.notes.append(f"left out: {count} meshes that are only seen: each {fault}")


def check_meshes(source: Source, collision: str) -> None:
    """Raise UserError for a mesh file that is missing or cannot be read, and is needed."""
    right = "or write collision=boxes, which replaces meshes by boxes of the bodies' inertia"
    for mesh in source.spec.meshes if collision != "boxes" else ():
        if mesh.file and not Path(mesh.file).is_file():
            raise UserError("from", source.path, f"mesh '{mesh.name}' is missing: {mesh.file}; put it there, {right}")
        if mesh.file and (fault := mesh_fault(Path(mesh.file))):
            raise UserError("from", source.path, f"mesh '{mesh.name}' {fault}, {right}")


def _find_mesh(name: str, path: Path) -> Path:
    """Return the file of a URDF's mesh: the one of its name, else that of its package with the longest common ending.

    A file of another package around is taken only if the name gives that package.
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
