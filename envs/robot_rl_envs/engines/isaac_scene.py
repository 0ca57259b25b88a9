"""A task's scene as Isaac Lab builds it: the robot as USD, a plane, Newton's physics with the task's options."""

# pyright: reportMissingImports=false

from __future__ import annotations

import contextlib
import io
import logging
import shutil
import tempfile
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import metadata, util
from pathlib import Path
from typing import Any

from robot_rl_envs.entity.scene import Scene

VERSION = "3.0"
"""The Isaac Lab that this is written for."""
SPACING = 2.5
"""Distance between worlds [m]; they never touch."""
CONTACTS, ROWS = 60, 300
"""Contacts and constraint rows a world at most, unless the task gives them."""


@dataclass(kw_only=True, slots=True)
class Worlds:
    """A running Isaac Lab scene.

    Attributes:
        sim: the ``SimulationContext``.
        scene: the ``InteractiveScene``.
        robot: its ``Articulation``.
        feet: the ``ContactSensor`` of the feet; None without feet.
        manager: Newton's physics manager.
        folder: of the USD files.
        owned: whether the simulation ends with the engine.
    """

    sim: Any
    scene: Any
    robot: Any
    feet: Any
    manager: Any
    folder: Path
    owned: bool = True

    def close(self) -> None:
        """Delete the files; end the simulation if it is the engine's own."""
        shutil.rmtree(self.folder, ignore_errors=True)
        if self.owned:
            self.sim.stop()
            self.sim.clear_instance()


def check_installed() -> None:
    """Refuse an environment without the right version of Isaac Lab."""
    if util.find_spec("isaaclab") is None:
        raise ValueError(
            "engine='isaac': Isaac Lab is not in this environment; make isaac builds one that has it, "
            "then .venv-isaac/bin/robot-rl"
        )
    with contextlib.suppress(metadata.PackageNotFoundError):
        found = metadata.version("isaaclab")
        if not found.startswith(f"{VERSION}."):
            raise ValueError(f"engine='isaac': Isaac Lab {found} is here, {VERSION} is needed; make isaac builds it")


def check_scene(scene: Scene) -> None:
    """Refuse features of MuJoCo's own engines only."""
    robot, actions = scene.robot, scene.actions
    if robot.complete:
        raise ValueError(f"engine='isaac': robot {robot.name!r} is a whole scene; it runs on mujoco and mujoco_warp")
    if scene.terrain is not None:
        raise ValueError("terrain: engine='isaac' has only a plane; use mujoco or mujoco_warp")
    if scene.mujoco_fields:
        raise ValueError(f"engine='isaac' does not have {', '.join(scene.mujoco_fields)}, which terms read; use mujoco")
    if scene.model.nsensordata != 4 * len(robot.feet) or scene.sensing.is_launched:
        raise ValueError("sensors: engine='isaac' has only the feet's contacts; use mujoco or mujoco_warp")
    kind = type(actions.actuator).__name__
    if kind == "DcMotor":
        raise ValueError("actions.actuator=DcMotor: is MuJoCo's own; engine='isaac' takes PositionPd or ExplicitPd")
    if actions.actuator.delayed and not actions.actuator.explicit:
        raise ValueError(
            f"actions.actuator.delay_s: {kind}'s delay is MuJoCo's own; with engine='isaac' take ExplicitPd"
        )


def write_assets(scene: Scene) -> Path:
    """Write "robot.usda" and "ground.usda" into a temporary folder and return it."""
    from robot_rl_assets.usd import write_ground, write_usd

    folder = Path(tempfile.mkdtemp(prefix="robot-rl-usd-"))
    write_usd(scene.robot, folder / "robot.usda", visual=False)
    write_ground(folder / "ground.usda", friction=scene.sim.floor_friction)
    return folder


def open_worlds(scene: Scene, num_envs: int, device: str) -> Worlds:
    """Build the scene and start its physics.

    Raises:
        ValueError: see `check_installed` and `check_scene`; or this process already runs a simulation of Isaac Lab.
    """
    check_installed()
    check_scene(scene)
    from isaaclab.scene import InteractiveScene
    from isaaclab.sim import SimulationContext
    from isaaclab.sim.utils.stage import use_stage

    if SimulationContext.instance() is not None:
        raise ValueError("engine='isaac': Isaac Lab simulates once a process; close the other environment first")
    folder = write_assets(scene)
    try:
        with quiet():
            sim = SimulationContext(sim_cfg(scene, device))
            with use_stage(sim.stage):
                built = InteractiveScene(scene_cfg(scene, num_envs, folder))
            sim.register_interactive_scene(built)
            with use_stage(sim.stage):
                sim.reset()
            built.update(dt=sim.cfg.dt)
        silence(sim)
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        SimulationContext.clear_instance()
        raise
    return find_parts(sim, built, folder, owned=True)


def silence(sim: Any) -> None:
    """Turn off MuJoCo Warp's line for every solve that reaches its iteration limit, which is a choice of speed."""
    model = getattr(getattr(sim.physics_manager, "_solver", None), "mjw_model", None)
    if hasattr(getattr(model, "opt", None), "warn_overflow"):
        model.opt.warn_overflow = 0  # type: ignore[union-attr]


def find_parts(sim: Any, scene: Any, folder: Path, *, owned: bool) -> Worlds:
    """Return the parts of a running scene that `scene_cfg` describes."""
    sensors = scene.sensors
    return Worlds(
        sim=sim,
        scene=scene,
        robot=scene.articulations["robot"],
        feet=sensors.get("feet"),
        manager=sim.physics_manager,
        folder=folder,
        owned=owned,
    )


def sim_cfg(scene: Scene, device: str) -> Any:
    """Return Isaac Lab's ``SimulationCfg`` with the task's physics options."""
    from isaaclab.sim import SimulationCfg
    from isaaclab_newton.physics import MJWarpSolverCfg, NewtonCfg

    sim, options = scene.sim, scene.model.opt
    solver = MJWarpSolverCfg(
        solver=sim.solver,
        integrator=sim.integrator,
        cone=sim.cone,
        iterations=sim.iterations,
        ls_iterations=sim.ls_iterations,
        tolerance=float(options.tolerance),
        impratio=float(options.impratio),
        njmax=sim.njmax or ROWS,
        nconmax=sim.nconmax or CONTACTS,
    )
    physics = NewtonCfg(solver_cfg=solver, num_substeps=1, use_cuda_graph=device.startswith("cuda"))
    gravity = tuple(float(value) for value in options.gravity)
    return SimulationCfg(device=device, dt=sim.timestep, gravity=gravity, physics=physics)


def scene_cfg(scene: Scene, num_envs: int, folder: Path) -> Any:
    """Return Isaac Lab's scene: the robot with its gains, the plane, and a sensor on each foot."""
    from isaaclab.actuators import ImplicitActuatorCfg
    from isaaclab.assets import ArticulationCfg, AssetBaseCfg
    from isaaclab.scene import InteractiveSceneCfg
    from isaaclab.sensors import ContactSensorCfg
    from isaaclab.sim import UsdFileCfg

    robot = scene.robot
    servo = scene.actions.kind == "position" and not scene.actions.actuator.explicit
    prim = "{ENV_REGEX_NS}/Robot"
    joints = {
        joint.name: ImplicitActuatorCfg(
            joint_names_expr=[joint.name],
            joint_effort_limit=joint.effort_limit,
            stiffness=joint.motor_gains[0] if servo else 0.0,
            damping=joint.motor_gains[1] if servo else 0.0,
        )
        for joint in robot.joints
        if not joint.passive
    }
    start = ArticulationCfg.InitialStateCfg(
        pos=(0.0, 0.0, robot.base_height), joint_pos={joint.name: joint.default_pos for joint in robot.joints}
    )
    cfg = InteractiveSceneCfg(num_envs=num_envs, env_spacing=SPACING, replicate_physics=True)
    usd = UsdFileCfg(usd_path=str(folder / "robot.usda"))
    cfg.robot = ArticulationCfg(prim_path=prim, spawn=usd, init_state=start, actuators=joints)
    if robot.feet:
        ground = UsdFileCfg(usd_path=str(folder / "ground.usda"))
        cfg.ground = AssetBaseCfg(prim_path="/World/ground", spawn=ground)
        bodies = {foot: scene.model.body(int(scene.model.geom(foot).bodyid[0])).name for foot in robot.feet}
        shapes = [f"{prim}/{body}/collisions/{foot}" for foot, body in bodies.items()]
        cfg.feet = ContactSensorCfg(prim_path=f"{prim}/.*", sensor_shape_prim_expr=shapes)
        # The arrows for forces are files in a cloud store; the spheres are not.
        cfg.feet.normal_force_visualizer_cfg = cfg.feet.friction_force_visualizer_cfg = cfg.feet.visualizer_cfg
    return cfg


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Keep Isaac Lab's tables and deprecation warnings off the terminal."""
    level = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        with contextlib.redirect_stdout(io.StringIO()), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(level)
