"""Newton's differentiable solver as a function of torch, and the tasks `cartpole` and `ant_v5` in it.

    pip install newton==1.8.0      # without its extra `sim`, which needs an older MuJoCo

`SolverFeatherstone` simulates in generalized coordinates, as MuJoCo does. A control step is one `wp.Tape`, whose
launches forward and back are captured into graphs, which Warp has for the CPU, too. What the solver overwrites (its
mass matrix and factors) belongs to one step of one horizon, or the way back would read values of a later step. A
contact point's place in its body never changes here (ends of capsules, a sphere, a plane), so contacts are found once,
with a gap that nothing leaves.
"""

from __future__ import annotations

import math
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import newton
import torch
import warp as wp
from torch import Tensor

GAP = 10.0
"""Distance up to which a contact is kept [m]."""


class Cartpole:
    """The task `cartpole`: its start, observation, reward and end, as functions of positions and velocities."""

    step_dt, limit, actions, angle = 0.04, 100, 1, 1
    substeps, mass_every, matrices = 4, 1, 4
    metric = "upright"
    settings: ClassVar[dict[str, Any]] = {"floating": False}
    materials: ClassVar[dict[str, float]] = {}
    limits: ClassVar[dict[str, float]] = {}
    mirror = (-1.0, -1.0, 1.0, -1.0, -1.0)
    """Signs of the observation in a mirror; the action's is -1."""

    @staticmethod
    def model() -> str:
        """Return the robot's model."""
        import robot_rl_assets

        return str(Path(robot_rl_assets.__file__).parent / "cartpole" / "model.xml")

    def start(self, worlds: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        """Return positions (N, 2) and velocities (N, 2) of new episodes."""
        q, qd = (2.0 * torch.rand(worlds, 2, generator=generator) - 1.0 for _ in range(2))
        return q * torch.tensor([0.2, math.pi]) + torch.tensor([0.0, math.pi]), qd * torch.tensor([0.1, 0.2])

    def force(self, action: Tensor) -> Tensor:
        """Return generalized forces (N, 2) [N, N m]."""
        return torch.cat((15.0 * action.clamp(-1.0, 1.0), torch.zeros_like(action)), 1)

    def observe(self, q: Tensor, qd: Tensor) -> Tensor:
        """Return what the policy sees (N, 5)."""
        return torch.cat((q[:, :1], q[:, 1:].sin(), q[:, 1:].cos(), 0.2 * qd), 1)

    def reward(self, before: Tensor, q: Tensor, qd: Tensor, action: Tensor) -> Tensor:
        """Return the reward of a step (N,)."""
        x, angle, spin = q[:, 0], q[:, 1], qd[:, 1]
        energy = 0.5 * (spin / 4.29).square() + angle.cos()
        swing = (1.0 - 0.5 * (energy - 1.0).abs()).clamp(min=0.0)
        paid = 0.3 * x.square() + 0.005 * spin.square() + 0.01 * action.square().sum(1)
        return self.step_dt * (0.5 * (1.0 + angle.cos()) + 0.5 * swing - paid)

    def failed(self, q: Tensor) -> Tensor:
        """Return whether the cart left its rail (N,)."""
        return q[:, 0].abs() > 1.75

    def measure(self, q: Tensor, qd: Tensor) -> Tensor:
        """Return the cosine of the pole's angle (N,)."""
        return q[:, 1].cos()


class Ant:
    """The task `ant_v5` without contact forces, which Newton does not hand out: 27 of 105 numbers are observed.

    Left out of the reward is their cost, at most 0.05 a step. Positions are Newton's: x y z, quaternion x y z w,
    joints. Contacts and joint limits are springs, and softer than MuJoCo's: stiffer ones have worse gradients.
    """

    step_dt, limit, actions = 0.05, 1000, 8
    substeps, mass_every, matrices = 8, 8, 1
    metric = "speed"
    settings: ClassVar[dict[str, Any]] = {}
    materials: ClassVar[dict[str, float]] = {"ke": 300.0, "kd": 5.0, "kf": 8.0}
    mirror = None
    limits: ClassVar[dict[str, float]] = {"ke": 1000.0, "kd": 10.0}
    order = (2, 3, 4, 5, 6, 7, 0, 1)
    """Action of each joint."""

    @staticmethod
    def model() -> str:
        """Return Gymnasium's model."""
        import gymnasium

        return str(Path(gymnasium.__file__).parent / "envs" / "mujoco" / "assets" / "ant.xml")

    def start(self, worlds: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        """Return positions (N, 15) and velocities (N, 14) of new episodes."""
        q = 0.1 * (2.0 * torch.rand(worlds, 15, generator=generator) - 1.0)
        q += torch.tensor([0.0, 0.0, 0.75, 0.0, 0.0, 0.0, 1.0] + 8 * [0.0])
        q[:, 3:7] /= q[:, 3:7].norm(dim=1, keepdim=True)
        return q, 0.1 * torch.randn(worlds, 14, generator=generator)

    def force(self, action: Tensor) -> Tensor:
        """Return generalized forces (N, 14) [N m]."""
        motors = 150.0 * action.clamp(-1.0, 1.0)[:, list(self.order)]
        return torch.cat((torch.zeros(len(action), 6), motors), 1)

    def observe(self, q: Tensor, qd: Tensor) -> Tensor:
        """Return height, quaternion w x y z, joints, and velocities as MuJoCo has them (N, 27)."""
        axis, w, spin = q[:, 3:6], q[:, 6:7], qd[:, 3:6]
        turned = 2.0 * torch.linalg.cross(axis, spin)
        spin = spin - w * turned + torch.linalg.cross(axis, turned)  # Into the torso's frame.
        return torch.cat((q[:, 2:3], w, axis, q[:, 7:], qd[:, :3], spin, qd[:, 6:]), 1)

    def reward(self, before: Tensor, q: Tensor, qd: Tensor, action: Tensor) -> Tensor:
        """Return the reward of a step (N,)."""
        healthy = (~self.failed(q)).float()
        return (q[:, 0] - before[:, 0]) / self.step_dt + healthy - 0.5 * action.square().sum(1)

    def failed(self, q: Tensor) -> Tensor:
        """Return whether the torso is too low or too high (N,)."""
        return (q[:, 2] <= 0.2) | (q[:, 2] >= 1.0)

    def measure(self, q: Tensor, qd: Tensor) -> Tensor:
        """Return the speed along x (N,) [m/s]."""
        return qd[:, 0]


TASKS = {"cartpole": Cartpole, "ant_v5": Ant}


@dataclass(slots=True)
class Slot:
    """What one control step writes, and its launches in a graph, which take a ninth of the time of single ones.

    Attributes:
        first: the state before.
        last: the state after.
        force: generalized forces, flat.
        forward: simulates.
        backward: goes back from the gradients of `last`, None without a gradient.
        clear: sets all gradients to zero.
        held: what the graphs need alive.
    """

    first: Any
    last: Any
    force: Any
    forward: Any
    backward: Any
    clear: Any
    held: tuple[Any, ...]


class World:
    """N worlds of a task in Newton, with memory for a horizon of steps."""

    def __init__(self, task: Any, worlds: int, steps: int, *, requires_grad: bool = True) -> None:
        """Build the model and allocate the steps; without a gradient one step's memory serves all."""
        self.task, self.worlds, self.requires_grad = task, worlds, requires_grad
        one, many = (newton.ModelBuilder(up_axis=newton.Axis.Z) for _ in range(2))
        one.default_shape_cfg.gap = GAP
        one.add_mjcf(task.model(), collapse_fixed_joints=True, **task.settings)
        many.replicate(one, worlds)
        self.model = model = many.finalize(requires_grad=requires_grad, device="cpu")
        for name, value in task.limits.items():
            getattr(model, f"joint_limit_{name}").fill_(value)
        for name, value in task.materials.items():
            getattr(model, f"shape_material_{name}").fill_(value)
        self.contacts = self._find_contacts() if task.materials else None
        self._slots = [self._allocate() for _ in range(steps if requires_grad else 1)]

    def _find_contacts(self) -> Any:
        state, pipeline = self.model.state(), newton.CollisionPipeline(self.model)
        newton.eval_fk(self.model, self.model.joint_q, self.model.joint_qd, state)
        contacts = pipeline.contacts()
        pipeline.collide(state, contacts)
        return contacts

    def _allocate(self) -> Slot:
        task, model, tape = self.task, self.model, wp.Tape()
        states = [model.state() for _ in range(task.substeps + 1)]
        make = newton.solvers.SolverFeatherstone
        solvers = [make(model, update_mass_matrix_interval=task.mass_every) for _ in range(task.matrices)]
        control = model.control()
        control.joint_f = wp.zeros_like(model.joint_qd, requires_grad=self.requires_grad)

        def simulate() -> None:
            for k in range(task.substeps):
                solver, dt = solvers[k // task.mass_every], task.step_dt / task.substeps
                solver.step(states[k], states[k + 1], control, self.contacts, dt)

        simulate()  # Kernels are compiled, and what a solver allocates is there before the capture.
        with wp.ScopedCapture(device="cpu") as forward, tape if self.requires_grad else nullcontext():
            simulate()
        backward = clear = None
        if self.requires_grad:
            tape.backward()
            with wp.ScopedCapture(device="cpu") as backward:
                tape.backward()
            with wp.ScopedCapture(device="cpu") as clear:
                tape.zero()
            tape.zero()
        graphs = [None if capture is None else capture.graph for capture in (forward, backward, clear)]
        return Slot(states[0], states[-1], control.joint_f, *graphs, (states, solvers, control, tape))

    def step(self, t: int, q: Tensor, qd: Tensor, action: Tensor) -> tuple[Tensor, Tensor]:
        """Return positions and velocities after step t of the horizon, with their gradient if the world has one."""
        force = self.task.force(action)
        if self.requires_grad:
            return Step.apply(q, qd, force, self, t)  # type: ignore[return-value]
        return self.simulate(0, q, qd, force)

    def simulate(self, t: int, q: Tensor, qd: Tensor, force: Tensor) -> tuple[Tensor, Tensor]:
        """Return positions and velocities after a step."""
        slot = self._slots[t]
        for array, value in ((slot.first.joint_q, q), (slot.first.joint_qd, qd), (slot.force, force)):
            wp.to_torch(array).detach().copy_(value.reshape(-1))
        wp.capture_launch(slot.forward)
        after_q, after_qd = (wp.to_torch(array).detach().clone() for array in (slot.last.joint_q, slot.last.joint_qd))
        return after_q.view(self.worlds, -1), after_qd.view(self.worlds, -1)

    def back(self, t: int, by_q: Tensor, by_qd: Tensor) -> list[Tensor]:
        """Return the gradients of positions, velocities and forces of the step that was simulated last at t."""
        slot = self._slots[t]
        for array, grad in ((slot.last.joint_q, by_q), (slot.last.joint_qd, by_qd)):
            wp.to_torch(array.grad).copy_(grad.reshape(-1))
        wp.capture_launch(slot.backward)
        arrays = (slot.first.joint_q, slot.first.joint_qd, slot.force)
        found = [wp.to_torch(array.grad).view(self.worlds, -1).clone() for array in arrays]
        wp.capture_launch(slot.clear)
        return found


class Step(torch.autograd.Function):
    """One control step."""

    @staticmethod
    def forward(ctx: Any, *given: Any) -> tuple[Tensor, Tensor]:
        """Simulate."""
        q, qd, force, ctx.world, ctx.t = given
        return ctx.world.simulate(ctx.t, q, qd, force)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        """Go back; a world with a gradient that is not finite gets none."""
        found = ctx.world.back(ctx.t, *grads)
        good = torch.stack([grad.isfinite().all(1) for grad in found]).all(0)[:, None]
        return (*(torch.where(good, grad, 0.0) for grad in found), None, None)
