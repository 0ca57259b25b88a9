"""Logs of a simulated robot that walks by a policy, with known parameters and, if wished, wrong wiring."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from robot_rl.identify.parameters import DELAY
from robot_rl.identify.plant_model import PlantModel

Array = NDArray[np.float64]
NOISE = {"q": 2e-4, "dq": 0.05, "gyro": 0.01, "accel": 0.1, "quat": 5e-4}
"""Standard deviations of the sensors."""
COMMAND_S = 1.5
"""Time between changes of the command [s]."""
FALLEN = 0.3
"""It fell if the cosine of its tilt is less."""


class Walk:
    """A robot that walks by the policy of a bundle."""

    def __init__(self, plant: PlantModel, theta: Array, policy: Path, seed: int) -> None:
        """Place it on the floor in its default pose.

        Args:
            plant: The model with a free base, with the timestep of the simulation.
            theta: Its parameters.
            policy: Directory of the bundle.
            seed: Of the noise and the commands.
        """
        import mujoco
        from robot_rl_deploy.policy import BundlePolicy

        joints = plant.robot.joints
        self.plant, self.theta, self.rng = plant, theta, np.random.default_rng(seed)
        self.kp, self.kd, self.default = (
            np.array([getattr(joint, key) for joint in joints]) for key in ("kp", "kd", "default_pos")
        )
        self.model = plant.with_parameters(theta, self.kp, self.kd)
        self.data = mujoco.MjData(self.model)
        self.policy = BundlePolicy(policy, joint_names=plant.robot.joint_names)
        self.dofs = plant.dq_index - self.model.nq
        self.data.qpos[2], self.data.qpos[plant.q_index] = plant.robot.base_height, self.default
        self.feet = [self.model.geom(name).id for name in plant.robot.feet]
        site = plant.robot.imu_site
        self.imu = np.zeros(3) if site is None else self.model.site(site).pos.copy()
        mujoco.mj_forward(self.model, self.data)

    def measure(self) -> dict[str, Array]:
        """Return the readings of the sensors, as rows of a log."""
        import mujoco

        data, model = self.data, self.model
        noise = {
            key: NOISE[key] * self.rng.standard_normal(size)
            for key, size in (("q", len(self.kp)), ("dq", len(self.kp)), ("gyro", 3), ("accel", 3), ("quat", 4))
        }
        turn, spin = data.xmat[model.body(self.plant.robot.base_body).id].reshape(3, 3), data.qvel[3:6]
        force = (
            turn.T @ (data.qacc[:3] - model.opt.gravity)
            + np.cross(data.qacc[3:6], self.imu)
            + np.cross(spin, np.cross(spin, self.imu))
        )
        touch = {int(geom) for geom in data.contact.geom.ravel()} if data.ncon else set()
        quat = data.qpos[3:7] + noise["quat"]
        mujoco.mju_normalize4(quat)
        return {
            "q": data.qpos[self.plant.q_index] + self.theta[self.plant.parameters.indices("offset")] + noise["q"],
            "dq": data.qvel[self.dofs] + noise["dq"],
            "quat": quat,
            "gyro": spin + noise["gyro"],
            "accel": force + noise["accel"],
            "feet": np.array([float(geom in touch) for geom in self.feet]),
        }

    def fallen(self) -> bool:
        """Return whether it lies on the floor."""
        return bool(self.data.xmat[self.model.body(self.plant.robot.base_body).id].reshape(3, 3)[2, 2] < FALLEN)


def walking_log(
    walk: Walk,
    seconds: float,
    period: float = 0.002,
    sense: Callable[[dict[str, Array]], dict[str, Array]] = lambda rows: rows,
    act: Callable[[Array], Array] = lambda target: target,
) -> dict[str, Any]:
    """Return the arrays of an .npz that a robot logs that walks after random commands until it falls.

    Args:
        walk: The robot.
        seconds: Length [s].
        period: Time between rows [s].
        sense: Changes the readings of the sensors as a wrong wiring does.
        act: Changes a target that is sent into the one that the joints follow.
    """
    import mujoco

    rows: dict[str, list[Array]] = {}
    delay = float(walk.theta[walk.plant.parameters.indices(DELAY)[0]])
    steps, wait = round(period / walk.plant.timestep), round(walk.policy.contract.control_period_s / period)
    sent, target, command = [], walk.default.copy(), np.zeros(3)
    for n in range(round(seconds / period)):
        row = sense(walk.measure())
        if n % round(COMMAND_S / period) == 0:
            low, high = (
                np.array([getattr(part, end) for part in walk.policy.contract.command]) for end in ("lower", "upper")
            )
            command = walk.rng.uniform(0.6 * low, 0.6 * high)
        if n % wait == 0:
            signals = {
                "joint_pos": row["q"],
                "joint_vel": row["dq"],
                "imu_gyro": row["gyro"],
                "imu_quat_wxyz": row["quat"],
                "command": command,
            }
            target = walk.policy.act({key: value[None] for key, value in signals.items()})[0][0].astype(float)
        for key, value in (row | {"target": target}).items():
            rows.setdefault(key, []).append(np.array(value))
        sent.append(act(target))
        for step in range(steps):
            # The mean of the delayed target over the step.
            edges = (n * period + np.array([step, step + 1]) * walk.plant.timestep - delay) / period
            first = int(np.floor(edges[0] + 1e-9))
            share = np.clip((first + 1 - edges[0]) / (edges[1] - edges[0]), 0.0, 1.0)
            old, new = (sent[at] if at >= 0 else walk.default for at in (first, min(first + 1, n)))
            walk.data.ctrl[:] = share * old + (1.0 - share) * new
            mujoco.mj_step(walk.model, walk.data)
        if walk.fallen():
            break
    arrays = {key: np.array(values) for key, values in rows.items()}
    return {
        "time": np.arange(len(sent)) * period,
        "kp": walk.kp,
        "kd": walk.kd,
        **arrays,
        "joints": np.array(walk.plant.robot.joint_names),
    }
