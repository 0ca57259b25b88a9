"""An exact model of a robot that hangs, is bolted or stands: rollouts whose differences are derivatives.

A solver that stops early makes rollouts rough on the scale of a derivative's step; the options here are therefore far
finer than a task's. Without contacts the trees of a fixed base, such as the legs, do not act on one another.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from robot_rl_assets.robot import Robot

from robot_rl.errors import UserError
from robot_rl.identify.parameters import FIELDS, Parameters

if TYPE_CHECKING:
    import mujoco

Array = NDArray[np.float64]
ITERATIONS, LS_ITERATIONS, TOLERANCE, LS_TOLERANCE = 100, 50, 1e-12, 1e-4
BASES = ("fixed", "free")
Law = Callable[[Array, Array], Array]
"""Torques [N m] by a step's position errors [rad] and speeds [rad/s], (J,) each."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Drive:
    """The commands of some rollouts of T steps, W rows; a target is the mean over its step.

    Attributes:
        target: (W, T, J) [rad].
        kp: (W, T, J) [N m/rad], before the gain.
        kd: (W, T, J) [N m s/rad].
        limit: (W, T, J) [N m], before the gain: the most that the position's part of the torque can be.
        constant: Whether gains and limits are the same in all steps of a row, and the limit that of the robot.
    """

    target: Array
    kp: Array
    kd: Array
    limit: Array
    constant: bool


class PlantModel:
    """The MuJoCo model of a robot, and its rollouts for many vectors of parameters.

    Attributes:
        robot: The robot.
        timestep: Of the rollouts [s].
        parameters: The vector of parameters.
        tree: For each joint, the tree of the model it is in: trees do not act on one another.
        effort_limit: (J,) [N m].
        link_inertia: (J,) of the links about each joint in the model's reference pose [kg m^2].
    """

    def __init__(self, robot: Robot, timestep: float, *, base: str = "fixed", threads: int = 1) -> None:
        """Compile the model.

        Args:
            robot: The robot.
            timestep: Of the rollouts [s].
            base: "fixed": bolted, without contacts; "free": it stands on a floor.
            threads: Threads of the rollouts; the results are the same bits with any number.

        Raises:
            UserError: The robot's model is a whole scene.
        """
        import mujoco
        from mujoco import rollout

        self.robot, self.timestep, self.base = robot, timestep, base
        self.model = _compile(robot, timestep, base)
        joints = [self.model.joint(name) for name in robot.joint_names]
        self._q = np.array([int(joint.qposadr[0]) for joint in joints])
        self._v = np.array([int(joint.dofadr[0]) for joint in joints])
        self._driven = np.array([n for n, joint in enumerate(robot.joints) if not joint.passive])
        self.tree = self.model.dof_treeid[self._v].copy()
        self.effort_limit = np.array([joint.effort_limit for joint in robot.joints])
        self.link_inertia = np.maximum(self.model.dof_M0[self._v] - self.model.dof_armature[self._v], 0.0)
        self.parameters = _parameters(robot, self.model, self._v, base)
        self._feet = [self.model.geom(name).id for name in robot.feet]
        self._data = [mujoco.MjData(self.model) for _ in range(threads)]
        self._pool = rollout.Rollout(nthread=threads if threads > 1 else 0)

    def with_parameters(self, theta: Array, kp: Array, kd: Array) -> mujoco.MjModel:
        """Return a copy of the model with a vector of parameters, and servos with gains (J,)."""
        import mujoco

        model = self.model.__copy__()
        gain, armature, damping, friction, offset, _ = self.by_joint(theta)
        # A negative damping makes stiff joints unstable in MuJoCo; the servo can take it off its own.
        model.dof_armature[self._v], model.dof_damping[self._v] = armature, np.maximum(damping, 0.0)
        kd = kd + np.minimum(damping, 0.0)
        model.dof_frictionloss[self._v] = friction
        strength = (gain * kp)[self._driven]
        model.actuator_gainprm[:, 0], model.actuator_biasprm[:, 1] = strength, -strength
        model.actuator_biasprm[:, 0], model.actuator_biasprm[:, 2] = -strength * offset[self._driven], -kd[self._driven]
        if self.base == "free":
            self._load_base(model, theta)
        mujoco.mj_setConst(model, self._data[0])
        return model

    def by_joint(self, theta: Array) -> Array:
        """Return the parameters of joints in a vector, (6, J)."""
        return theta[: self.parameters.delay].reshape(len(FIELDS), -1)

    def _load_base(self, model: Any, theta: Array) -> None:
        """Write mass and center of the base, and the friction of feet and floor, into a model."""
        mass, *shift, friction = theta[self.parameters.delay + 1 :]
        body = model.body(self.robot.base_body).id
        factor = 1.0 + mass / model.body_mass[body]
        model.body_mass[body] *= factor
        model.body_inertia[body] *= factor
        model.body_ipos[body] += shift
        model.geom_friction[[*self._feet, model.geom("floor").id], 0] = friction

    def link_torques(self, q: Array, dq: Array, ddq: Array) -> Array:
        """Return the torques (N, J) that move the links alone, without rotors, damping and friction [N m]."""
        import mujoco

        model, data = self.model.__copy__(), self._data[0]
        model.dof_armature[:], model.dof_damping[:], model.dof_frictionloss[:] = 0.0, 0.0, 0.0
        mujoco.mj_setConst(model, data)
        mujoco.mj_resetData(model, data)
        found = np.empty_like(q)
        for n in range(len(q)):
            data.qpos[self._q], data.qvel[self._v], data.qacc[self._v] = q[n], dq[n], ddq[n]
            mujoco.mj_inverse(model, data)
            found[n] = data.qfrc_inverse[self._v]
        return found

    def simulate(
        self,
        thetas: Sequence[Array],
        q: Array,
        dq: Array,
        drives: Sequence[Drive],
        law: Callable[[int], Law] | None = None,
    ) -> tuple[Array, Array]:
        """Return measured positions [rad] and speeds [rad/s] of rollouts, each (C, W, T + 1, J), the start included.

        Args:
            thetas: C vectors of parameters.
            q: Measured positions at the start, (W, J).
            dq: Speeds there, (W, J).
            drives: The commands, one for each vector.
            law: Makes the law of the motors of a row, in place of kp times the error.
        """
        plain = law is None and all(not theta[self.parameters.indices("load_friction")].any() for theta in thetas)
        batched = plain and all(drive.constant for drive in drives)
        offsets = np.array([theta[self.parameters.indices("offset")] for theta in thetas])[:, None]
        starts = q[None] - offsets
        inputs = (thetas, starts, dq, drives)
        found_q, found_dq = self._roll_out(*inputs) if batched else self._step(*inputs, law)
        found_q = np.concatenate([starts[:, :, None], found_q], 2) + offsets[:, None]
        first = np.broadcast_to(dq[None, :, None], (len(thetas), len(dq), 1, dq.shape[1]))
        found_dq = np.concatenate([first, found_dq], 2)
        broken = 1e3  # A rollout that diverged is far from any measurement.
        found_q, found_dq = (
            np.clip(np.nan_to_num(values, nan=broken), -broken, broken) for values in (found_q, found_dq)
        )
        return found_q, found_dq

    def _roll_out(self, thetas: Sequence[Array], q: Array, dq: Array, drives: Sequence[Drive]) -> tuple[Array, Array]:
        """Roll out a robot with a fixed base; see `roll_out`."""
        start = np.zeros((len(thetas), len(dq), self.model.nq + self.model.nv))
        start[..., : self.model.nq] = self.model.qpos0
        start[..., self.q_index], start[..., self.dq_index] = q, dq
        states = self.roll_out(thetas, start, drives)
        return states[..., self.q_index], states[..., self.dq_index]

    def roll_out(self, thetas: Sequence[Array], start: Array, drives: Sequence[Drive]) -> Array:
        """Roll out all rows of all vectors in one batch; gains and limits are constant in each row.

        Args:
            thetas: C vectors of parameters.
            start: MuJoCo's qpos and qvel at the start, (C, W, nq + nv).
            drives: The commands, one for each vector.

        Returns:
            The states after each step, (C, W, T, nq + nv).
        """
        rows, models, controls = start.shape[1], [], []
        for theta, drive in zip(thetas, drives, strict=True):
            kinds: dict[bytes, Any] = {}
            for n in range(rows):
                kp, kd = drive.kp[n, 0], drive.kd[n, 0]
                key = kp.tobytes() + kd.tobytes()
                if key not in kinds:
                    kinds[key] = self.with_parameters(theta, kp, kd)
                models.append(kinds[key])
            controls.append(drive.target[..., self._driven])
        control, timed = np.concatenate(controls), np.concatenate([np.zeros((*start.shape[:2], 1)), start], -1)
        states, _ = self._pool.rollout(models, self._data, timed.reshape(len(models), -1), control)
        states = np.asarray(states, np.float64).reshape(len(thetas), rows, control.shape[1], -1)
        return states[..., 1:]

    @property
    def q_index(self) -> NDArray[np.int64]:
        """Return the indices of the joints' positions in a state of `roll_out`, (J,)."""
        return self._q

    @property
    def dq_index(self) -> NDArray[np.int64]:
        """Return the indices of the joints' speeds in it, (J,)."""
        return self.model.nq + self._v

    def _step(
        self,
        thetas: Sequence[Array],
        q: Array,
        dq: Array,
        drives: Sequence[Drive],
        law: Callable[[int], Law] | None = None,
    ) -> tuple[Array, Array]:
        """Roll out row by row, step by step: load friction, gains that change, a motor's limit or its own law.

        The load is the torque of the motor against that of gravity and motion (`qfrc_bias`).
        """
        import mujoco

        data, v = self._data[0], self._v
        shape = (len(thetas), len(dq), drives[0].target.shape[1], len(v))
        found_q, found_dq = np.empty(shape), np.empty(shape)
        none = np.zeros(len(v))
        for c, (theta, drive) in enumerate(zip(thetas, drives, strict=True)):
            gain, _, damping, dry, offset, load = self.by_joint(theta)
            # Here the model's damping takes a negative one, so the servos have none to take off.
            model = self.with_parameters(theta, none, -np.minimum(damping, 0.0))
            aim, kp, limit = drive.target - offset, drive.kp * gain, drive.limit * gain
            for w in range(shape[1]):
                mujoco.mj_resetData(model, data)
                data.qpos[self._q], data.qvel[v] = q[c, w], dq[w]
                mujoco.mj_forward(model, data)
                position, speed, own_law = q[c, w], dq[w], law(w) if law else None
                for t in range(shape[2]):
                    error = aim[w, t] - position
                    torque = own_law(error, speed) if own_law else kp[w, t] * error
                    torque = np.minimum(np.maximum(torque, -limit[w, t]), limit[w, t])
                    kd = drive.kd[w, t]
                    model.dof_damping[v] = damping + kd
                    model.dof_frictionloss[v] = dry + load * np.abs(torque - kd * speed + data.qfrc_bias[v])
                    data.qfrc_applied[v] = torque
                    mujoco.mj_step(model, data)
                    position, speed = data.qpos[self._q], data.qvel[v]
                    found_q[c, w, t], found_dq[c, w, t] = position, speed
        return found_q, found_dq


def joint_limits(robot: Robot) -> tuple[Array, Array]:
    """Return the range of each joint's position, (J, 2), infinite without one, and its inertia, (J,) [kg m^2 or kg]."""
    model = robot.load_model().compile()
    ids = [model.joint(name).id for name in robot.joint_names]
    limited = model.jnt_limited[ids].astype(bool)[:, None]
    return np.where(limited, model.jnt_range[ids], [-np.inf, np.inf]), model.dof_M0[model.jnt_dofadr[ids]]


def _compile(robot: Robot, timestep: float, base: str) -> Any:
    """Return the robot's model with a servo on each driven joint."""
    import mujoco

    if robot.complete:
        raise UserError("robot", robot.name, "its model is a whole scene, with its own actuators", "name a robot")
    if base not in BASES:
        raise UserError("base", base, f"must be one of {', '.join(BASES)}")
    if base == "free" and robot.base_body is None:
        raise UserError("base", base, f"{robot.name} is bolted to the ground", "use base=fixed")
    spec = robot.load_model()
    for geom in [geom for geom in spec.geoms if geom.group == 2]:  # It only looks: every body has its inertia.
        spec.delete(geom)
    if base == "fixed":
        for joint in [joint for joint in spec.joints if joint.type == mujoco.mjtJoint.mjJNT_FREE]:
            spec.delete(joint)
        spec.option.disableflags |= int(mujoco.mjtDisableBit.mjDSBL_CONTACT)
    else:
        spec.worldbody.add_geom(
            name="floor", type=mujoco.mjtGeom.mjGEOM_PLANE, size=[0, 0, 1], friction=[0.8, 0.02, 0.01]
        )
    for joint in robot.joints:
        if joint.passive:
            continue
        limit = joint.effort_limit
        servo = spec.add_actuator(name=joint.name, target=joint.name, trntype=mujoco.mjtTrn.mjTRN_JOINT)
        servo.biastype, servo.forcelimited, servo.forcerange = mujoco.mjtBias.mjBIAS_AFFINE, 1, [-limit, limit]
    option = spec.option
    option.timestep, option.integrator = timestep, mujoco.mjtIntegrator.mjINT_IMPLICITFAST
    option.iterations, option.ls_iterations = ITERATIONS, LS_ITERATIONS
    option.tolerance, option.ls_tolerance = TOLERANCE, LS_TOLERANCE
    return spec.compile()


def _parameters(robot: Robot, model: Any, dofs: NDArray[np.int64], base: str) -> Parameters:
    """Return nominal values, priors and bounds: widths follow the robot's own gains and limits."""
    count, kd = len(dofs), np.array([joint.kd for joint in robot.joints])
    effort = np.array([joint.effort_limit for joint in robot.joints])
    one, none = np.ones(count), np.zeros(count)
    armature, damping, friction = (
        values[dofs].copy() for values in (model.dof_armature, model.dof_damping, model.dof_frictionloss)
    )
    rotor = np.where(armature > 0, armature, 0.2 * model.dof_M0[dofs])
    viscous = np.maximum(np.maximum(0.3 * kd, damping), 1e-3 * effort + 1e-6)
    body = _body_parameters(robot, model) if base == "free" else np.zeros((3, 0))
    return Parameters(
        joints=robot.joint_names,
        nominal=np.concatenate([one, armature, damping, friction, none, none, [0.0], body[0]]),
        prior=np.concatenate(
            [
                0.25 * one,
                rotor,
                viscous,
                np.maximum(0.0125 * effort, 1.5 * friction) + 1e-6,
                0.03 * one,
                0.2 * one,
                [0.01],
                body[1],
            ]
        ),
        lower=np.concatenate([0.2 * one, 0.05 * rotor, -0.5 * kd, none, -0.3 * one, none, [0.0], body[2]]),
    )


def _body_parameters(robot: Robot, model: Any) -> Array:
    """Return nominal values, priors and bounds (3, 5) of `BODY`: a fifth of the weight, a tenth of the height."""
    weight, height = float(model.body_mass.sum()), robot.base_height or 1.0
    feet, floor = [model.geom(name) for name in robot.feet], model.geom("floor")
    # The geom with the higher priority decides about the friction, else the larger value.
    first = max(feet, key=lambda geom: int(geom.priority[0]), default=floor)
    first = first if first.priority[0] > floor.priority[0] or first.friction[0] > floor.friction[0] else floor
    friction = float(first.friction[0])
    least = -0.9 * float(model.body(robot.base_body).mass[0])
    return np.array(
        [
            [0.0, 0.0, 0.0, 0.0, friction],
            [0.2 * weight, *[0.1 * height] * 3, 0.5 * friction],
            [least, *[-height] * 3, 0.1 * friction],
        ]
    )
