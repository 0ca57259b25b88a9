"""What Newton's importer makes of our USD files is MuJoCo's compiled model again, figure by figure."""

import mujoco
import numpy as np
import pytest

pytest.importorskip("newton", reason="Newton is not in this environment")
pytest.importorskip("isaaclab", reason="Isaac Lab is not in this environment")

from robot_rl_assets.registry import get_robot, list_robots

SINGLE = {"rtol": 1e-6, "atol": 1e-8}  # Newton is single precision throughout


@pytest.fixture(scope="module", params=list_robots())
def imported(request, tmp_path_factory):
    """The robot, MuJoCo's model of its MJCF file and MuJoCo's model of what Newton read from the USD file."""
    import newton
    from newton.solvers import SolverMuJoCo
    from newton.usd import SchemaResolverMjc, SchemaResolverNewton, SchemaResolverPhysx
    from robot_rl_assets.usd import write_usd

    robot = get_robot(request.param)
    path = write_usd(robot, tmp_path_factory.mktemp("usd") / "robot.usda", visual=False)
    builder = newton.ModelBuilder()
    SolverMuJoCo.register_custom_attributes(builder)
    # Isaac Lab's own order.
    builder.add_usd(str(path), schema_resolvers=[SchemaResolverNewton(), SchemaResolverPhysx(), SchemaResolverMjc()])
    # MuJoCo itself, so that no kernel is compiled.
    theirs = SolverMuJoCo(builder.finalize(device="cpu"), use_mujoco_cpu=True).mj_model
    return robot, mujoco.MjModel.from_xml_path(str(robot.model)), theirs


def find(model, kind, name):
    """The index of what is called so there: its name is the path of the prim."""
    objects = {"body": model.nbody, "joint": model.njnt, "geom": model.ngeom}
    code = getattr(mujoco.mjtObj, f"mjOBJ_{kind.upper()}")
    names = [mujoco.mj_id2name(model, code, index) or "" for index in range(objects[kind])]
    matches = [k for k, found in enumerate(names) if f"_{found.replace('/', '_')}_".endswith(f"_{name}_")] or [
        k for k, found in enumerate(names) if found.rpartition("_")[0].endswith(f"/{name}")
    ]
    return min(matches, key=lambda k: len(names[k]))  # "joint1" is also the end of "finger_joint1", further down


def inertia(model, body):
    """Inertia about the centre of mass along the body's own axes."""
    turn = np.zeros(9)
    mujoco.mju_quat2Mat(turn, model.body_iquat[body])
    turn = turn.reshape(3, 3)
    return turn @ np.diag(model.body_inertia[body]) @ turn.T


def test_masses_and_inertias(imported):
    _, ours, theirs = imported
    for body in range(1, ours.nbody):
        if not ours.body_dofnum[ours.body_rootid[body]] and not ours.body_dofnum[body]:
            continue  # bolted to the world: nothing depends on its mass
        other = find(theirs, "body", ours.body(body).name)
        np.testing.assert_allclose(theirs.body_mass[other], ours.body_mass[body], **SINGLE)
        np.testing.assert_allclose(theirs.body_ipos[other], ours.body_ipos[body], **SINGLE)
        np.testing.assert_allclose(inertia(theirs, other), inertia(ours, body), rtol=2e-5, atol=2e-6)


def test_joints(imported):
    robot, ours, theirs = imported
    for joint in robot.joints:
        mine, other = ours.joint(joint.name).id, find(theirs, "joint", joint.name)
        dof, other_dof = ours.jnt_dofadr[mine], theirs.jnt_dofadr[other]
        for field in ("armature", "damping", "frictionloss"):
            right = np.ravel(getattr(ours, f"dof_{field}")[dof])[0]
            found = np.ravel(getattr(theirs, f"dof_{field}")[other_dof])[0]
            np.testing.assert_allclose(found, right, **SINGLE, err_msg=f"{joint.name} {field}")
        assert theirs.jnt_type[other] == ours.jnt_type[mine]
        assert bool(theirs.jnt_limited[other]) == bool(ours.jnt_limited[mine])
        if ours.jnt_limited[mine]:
            np.testing.assert_allclose(theirs.jnt_range[other], ours.jnt_range[mine], **SINGLE)
        np.testing.assert_allclose(theirs.jnt_solref[other], ours.jnt_solref[mine], **SINGLE)
        if not joint.passive:
            np.testing.assert_allclose(theirs.jnt_actfrcrange[other, 1], joint.effort_limit, **SINGLE)


def test_shapes_that_collide(imported):
    _, ours, theirs = imported
    colliding = [g for g in range(ours.ngeom) if ours.geom_contype[g] or ours.geom_conaffinity[g]]
    assert theirs.ngeom == len(colliding)
    for geom in colliding:
        name = ours.geom(geom).name
        other = find(theirs, "geom", name)
        assert theirs.geom_type[other] == ours.geom_type[geom], name
        used = {2: 1, 3: 2, 5: 2, 6: 3}[int(ours.geom_type[geom])]  # MuJoCo fills what a shape does not use
        np.testing.assert_allclose(theirs.geom_size[other, :used], ours.geom_size[geom, :used], **SINGLE)
        np.testing.assert_allclose(theirs.geom_pos[other], ours.geom_pos[geom], **SINGLE, err_msg=name)
        np.testing.assert_allclose(theirs.geom_friction[other], ours.geom_friction[geom], **SINGLE)
        np.testing.assert_allclose(theirs.geom_solref[other], ours.geom_solref[geom], **SINGLE)
        for field in ("condim", "priority", "margin", "gap"):
            right = getattr(ours, f"geom_{field}")[geom]
            assert getattr(theirs, f"geom_{field}")[other] == right, f"{name} {field}"
