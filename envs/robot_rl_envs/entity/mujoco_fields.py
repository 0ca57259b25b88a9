"""MuJoCo's own fields that a task's terms read besides the state: ``s.engine_<name>``, (num_envs, rows, columns).

They are the engine's memory, in its precision: float64 on the CPU, float32 in MuJoCo Warp. After a step they hold
MuJoCo's last values, as ``MjData`` does after ``mj_step``: they are one physics step behind the state or, with
``integrator="rk4"``, at the last stage of that step. After a reset they are the new state's, and forces are zero.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from robot_rl_envs.task import Task

STATE = frozenset({"qpos", "qvel"})
"""Fields that are the state itself; in an episode's first observation they are still those of the last episode."""
POST_CONSTRAINT = frozenset({"cfrc_ext"})
"""Fields that MuJoCo leaves to ``mj_rnePostConstraint``, which a step calls only for some sensors."""
FORCES = POST_CONSTRAINT | {"actuator_force", "qfrc_actuator", "qfrc_constraint", "qfrc_passive", "qacc", "qfrc_smooth"}
"""Fields of forces and accelerations: at an episode's start nothing has acted yet."""
MOTION = frozenset({"xpos", "xquat", "xipos", "subtree_com", "cinert", "cvel", "ten_length", "ten_velocity"})
"""Fields that follow from positions and velocities."""
FIELDS = STATE | FORCES | MOTION


def used_mujoco_fields(task: Task) -> tuple[str, ...]:
    """Return the fields that the task's terms declare, sorted.

    Raises:
        ValueError: a term declares a field that cannot be watched.
    """
    sections = [task.rewards, task.terminations, *(group.terms for group in task.vectors.values())]
    sections += [message.terms for message in task.messages.values()]
    found: set[str] = set()
    for terms in sections:
        for name, term in terms.items():
            declared = term.info.data if hasattr(term, "info") else ()
            for field in declared:
                if field not in FIELDS:
                    raise ValueError(f"{name}: reads data={field!r}; must be one of {', '.join(sorted(FIELDS))}")
            found.update(declared)
    return tuple(sorted(found))
