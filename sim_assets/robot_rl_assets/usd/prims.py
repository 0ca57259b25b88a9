"""Small things that every part of a USD file of ours needs."""

# pyright: reportMissingImports=false, reportAttributeAccessIssue=false

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import numpy as np

CREATOR = "creator"
"""Key of a layer's data that names who wrote it."""


def is_ours(path: Path) -> bool:
    """Whether a file is USD that this package wrote.

    Raises:
        ValueError: it is not USD.
    """
    from pxr import Sdf, Tf

    try:
        layer = Sdf.Layer.OpenAsAnonymous(str(path), metadataOnly=True)
    except Tf.ErrorException as error:
        raise ValueError(f"{path}: is not USD") from error
    return layer is not None and layer.customLayerData.get(CREATOR) == "robot-rl"


def new_stage(path: Path) -> Any:
    """An empty stage in metres and kilograms, z up; nothing is on disk before `save`."""
    from pxr import Usd, UsdGeom, UsdPhysics

    if path.suffix not in (".usda", ".usd", ".usdc"):
        raise ValueError(f"'{path}': a USD file ends in .usda (text) or .usd")
    stage = Usd.Stage.CreateInMemory()
    stage.GetRootLayer().customLayerData = {CREATOR: "robot-rl"}
    UsdGeom.SetStageUpAxis(stage, UsdGeom.Tokens.z)
    UsdGeom.SetStageMetersPerUnit(stage, 1.0)
    UsdPhysics.SetStageKilogramsPerUnit(stage, 1.0)
    return stage


def save(stage: Any, path: Path) -> Path:
    """Write a stage, whole or not at all.

    Args:
        stage: the stage.
        path: the file.

    Raises:
        OSError: it cannot be written.
        ValueError: USD cannot write there.
    """
    from pxr import Tf

    with tempfile.TemporaryDirectory(prefix=f".{path.name}-", dir=path.parent) as folder:
        scratch = Path(folder) / path.name
        try:
            stage.GetRootLayer().Export(str(scratch))
        except Tf.ErrorException as error:
            raise ValueError(f"{path}: cannot be written there") from error
        scratch.replace(path)
    return path


def name_of(model: Any, kind: str, index: int) -> str:
    """The name of a body or joint of a MuJoCo model, as a prim's.

    Raises:
        ValueError: it has none, or one that USD does not take.
    """
    import mujoco

    name = mujoco.mj_id2name(model, getattr(mujoco.mjtObj, f"mjOBJ_{kind.upper()}"), index)
    if not name:
        raise ValueError(f"{kind} {index} of the model is without a name; give it one")
    return prim_name(kind, name)


def prim_name(kind: str, name: str) -> str:
    """The name itself where USD takes it.

    Raises:
        ValueError: it is not an identifier.
    """
    if not name.isascii() or not name.isidentifier():
        raise ValueError(f"{kind} '{name}': a name in USD has only letters, digits and _")
    return name


def set_pose(xform: Any, pos: np.ndarray, quat_wxyz: np.ndarray, scale: tuple[float, ...] | None = None) -> None:
    """Give a prim its pose in the one above it [m], and a scale."""
    from pxr import Gf, UsdGeom

    double = UsdGeom.XformOp.PrecisionDouble
    xform.AddTranslateOp().Set(Gf.Vec3d(*map(float, pos)))
    xform.AddOrientOp(double).Set(Gf.Quatd(*map(float, quat_wxyz)))
    if scale is not None:
        xform.AddScaleOp(double).Set(Gf.Vec3d(*map(float, scale)))


def set_attributes(prim: Any, values: dict[str, Any]) -> None:
    """Set attributes of others' schemas by name: flags, whole numbers, numbers and lists of these."""
    from pxr import Sdf

    for name, value in values.items():
        if isinstance(value, bool):
            kind = Sdf.ValueTypeNames.Bool
        elif isinstance(value, int):
            kind = Sdf.ValueTypeNames.Int
        elif isinstance(value, list):
            kind = Sdf.ValueTypeNames.DoubleArray
        else:
            # Newton's and PhysX's schemas are single precision, MuJoCo's double.
            kind = Sdf.ValueTypeNames.Double if name.startswith("mjc:") else Sdf.ValueTypeNames.Float
        prim.CreateAttribute(name, kind, custom=False).Set(value)
