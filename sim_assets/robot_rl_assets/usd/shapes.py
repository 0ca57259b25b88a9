"""Shapes of a robot, and the ground: geometry, collisions, materials."""

# pyright: reportMissingImports=false, reportAttributeAccessIssue=false

from __future__ import annotations

from typing import Any

import numpy as np

from robot_rl_assets.usd.prims import name_of, prim_name, set_attributes, set_pose

GROUND = "ground"
TORSION, ROLLING = 0.005, 0.0001
"""The floor's torsional and rolling friction [m], those of our own floor."""


def add_geom(stage: Any, body: str, model: Any, geom: int) -> None:
    """Add one geom below its body: in "collisions" with everything about its contacts, or in "visuals".

    Args:
        stage: the stage.
        body: path of the body.
        model: the compiled ``mujoco.MjModel``.
        geom: its index there.

    Raises:
        ValueError: a shape that USD's physics does not have.
    """
    import mujoco
    from pxr import UsdGeom, UsdPhysics, Vt

    collides = bool(model.geom_contype[geom] or model.geom_conaffinity[geom])
    name = mujoco.mj_id2name(model, mujoco.mjtObj.mjOBJ_GEOM, geom) or f"geom_{geom}"
    path = f"{body}/{'collisions' if collides else 'visuals'}/{prim_name('geom', name)}"
    UsdGeom.Scope.Define(stage, path.rpartition("/")[0])
    shape = _define(stage, path, model, geom, collides=collides)
    material = int(model.geom_matid[geom])
    rgba = model.geom_rgba[geom] if material < 0 else model.mat_rgba[material]
    shape.CreateDisplayColorAttr(Vt.Vec3fArray([tuple(map(float, rgba[:3]))]))
    if not collides:
        return
    prim = shape.GetPrim()
    UsdGeom.Imageable(prim).CreatePurposeAttr(UsdGeom.Tokens.guide)
    UsdPhysics.CollisionAPI.Apply(prim)
    set_attributes(
        prim,
        {
            "mjc:contype": int(model.geom_contype[geom]),
            "mjc:conaffinity": int(model.geom_conaffinity[geom]),
            "mjc:condim": int(model.geom_condim[geom]),
            "mjc:group": int(model.geom_group[geom]),
            "mjc:priority": int(model.geom_priority[geom]),
            "mjc:solref": list(map(float, model.geom_solref[geom])),
            "mjc:solimp": list(map(float, model.geom_solimp[geom])),
            "mjc:solmix": float(model.geom_solmix[geom]),
            "mjc:margin": float(model.geom_margin[geom]),
            "mjc:gap": float(model.geom_gap[geom]),
            "newton:contactMargin": float(model.geom_margin[geom]),
            "newton:contactGap": float(model.geom_gap[geom]),
        },
    )
    _bind(stage, prim, tuple(map(float, model.geom_friction[geom])))


def add_ground(stage: Any, friction: float) -> None:
    """Add an endless plane through the origin as the stage's default prim."""
    from pxr import UsdGeom, UsdPhysics

    root = UsdGeom.Xform.Define(stage, f"/{GROUND}").GetPrim()
    stage.SetDefaultPrim(root)
    plane = UsdGeom.Plane.Define(stage, f"/{GROUND}/plane")
    plane.CreateAxisAttr("Z")
    prim = plane.GetPrim()
    UsdPhysics.CollisionAPI.Apply(prim)
    contact = {"mjc:contype": 1, "mjc:conaffinity": 0, "mjc:condim": 3, "mjc:priority": 0}
    contact |= {"mjc:solref": [0.02, 1.0], "mjc:solimp": [0.9, 0.95, 0.001, 0.5, 2.0], "mjc:solmix": 1.0}
    contact |= {"mjc:margin": 0.0, "mjc:gap": 0.0, "newton:contactMargin": 0.0, "newton:contactGap": 0.0}
    set_attributes(prim, contact)
    _bind(stage, prim, (friction, TORSION, ROLLING))


def _define(stage: Any, path: str, model: Any, geom: int, *, collides: bool) -> Any:
    """The shape itself, with its size and its pose in the body."""
    import mujoco
    from pxr import UsdGeom

    size = [float(value) for value in model.geom_size[geom]]
    kind = mujoco.mjtGeom(int(model.geom_type[geom])).name.removeprefix("mjGEOM_").lower()
    scale = None
    if kind == "sphere":
        shape = UsdGeom.Sphere.Define(stage, path)
        shape.CreateRadiusAttr(size[0])
    elif kind in ("capsule", "cylinder"):
        shape = (UsdGeom.Capsule if kind == "capsule" else UsdGeom.Cylinder).Define(stage, path)
        shape.CreateAxisAttr("Z")
        shape.CreateRadiusAttr(size[0])
        shape.CreateHeightAttr(2.0 * size[1])
    elif kind == "box":
        shape = UsdGeom.Cube.Define(stage, path)
        shape.CreateSizeAttr(2.0)
        scale = tuple(size)
    elif kind == "ellipsoid" and not collides:
        shape = UsdGeom.Sphere.Define(stage, path)
        shape.CreateRadiusAttr(1.0)
        scale = tuple(size)
    elif kind == "mesh":
        shape = _define_mesh(stage, path, model, int(model.geom_dataid[geom]), collides=collides)
    else:
        body = name_of(model, "body", int(model.geom_bodyid[geom]))
        raise ValueError(f"body '{body}': a colliding {kind} is not a shape of USD's physics; use capsule, box or mesh")
    set_pose(shape, model.geom_pos[geom], model.geom_quat[geom], scale)
    return shape


def _define_mesh(stage: Any, path: str, model: Any, mesh: int, *, collides: bool) -> Any:
    from pxr import UsdGeom, UsdPhysics, Vt

    first, count = int(model.mesh_vertadr[mesh]), int(model.mesh_vertnum[mesh])
    faces, face_count = int(model.mesh_faceadr[mesh]), int(model.mesh_facenum[mesh])
    shape = UsdGeom.Mesh.Define(stage, path)
    shape.CreatePointsAttr(Vt.Vec3fArray.FromNumpy(np.array(model.mesh_vert[first : first + count], np.float32)))
    indices = np.array(model.mesh_face[faces : faces + face_count], np.int32).ravel()
    shape.CreateFaceVertexIndicesAttr(Vt.IntArray.FromNumpy(indices))
    shape.CreateFaceVertexCountsAttr(Vt.IntArray(face_count, 3))
    shape.CreateSubdivisionSchemeAttr("none")
    if collides:
        UsdPhysics.MeshCollisionAPI.Apply(shape.GetPrim()).CreateApproximationAttr("convexHull")
    return shape


def _bind(stage: Any, prim: Any, friction: tuple[float, ...]) -> None:
    """Give a shape a physics material of this sliding, torsional and rolling friction; equal ones share it."""
    from pxr import UsdPhysics, UsdShade

    root = str(stage.GetDefaultPrim().GetPath())
    tag = "_".join(f"{value:g}" for value in friction)
    path = f"{root}/materials/friction_{tag.replace('.', 'p').replace('-', 'm').replace('+', '')}"
    material = UsdShade.Material.Get(stage, path)
    if not material:
        material = UsdShade.Material.Define(stage, path)
        physics = UsdPhysics.MaterialAPI.Apply(material.GetPrim())
        physics.CreateStaticFrictionAttr(friction[0])
        physics.CreateDynamicFrictionAttr(friction[0])
        physics.CreateRestitutionAttr(0.0)
        figures = {"torsionalFriction": friction[1], "rollingFriction": friction[2]}
        values = {f"newton:{name}": value for name, value in figures.items()}
        set_attributes(material.GetPrim(), values | {f"mjc:{name.lower()}": value for name, value in figures.items()})
    UsdShade.MaterialBindingAPI.Apply(prim).Bind(material, materialPurpose="physics")
