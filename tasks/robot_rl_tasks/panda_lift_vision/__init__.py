"""Franka Panda picks up a cube as in `panda_lift`, seen only by a depth camera at its wrist.

The actor has its joints, the target and the depth image. Facts of the cube it learns from a teacher
that gets the cube's place: the policy of `panda_lift`. Reinforcement learning on images alone would first have to
find out by chance that the rewards are about the small square in the image.
"""

import dataclasses

from robot_rl_envs.cameras import Camera, ImageGroup
from robot_rl_envs.task import ObservationGroup, Task

from robot_rl_tasks import panda_lift

WRIST = "wrist"
CUBE_TERMS = ("cube", "hand_to_cube")
"""Terms of the cube that the teacher's actor gets, and this one has to see."""


def wrist_camera() -> Camera:
    """Return a depth camera of short range at the hand's site: 87 degrees wide, 65 high, 4 to 50 cm.

    It is tilted by 15 degrees towards the fingers: at the start it sees the whole region of the cube, and later
    the cube between the fingers.
    """
    return Camera(
        name=WRIST,
        body="wrist_camera",
        forward=(0.966, 0.0, -0.259),
        fovy=65.0,
        width=24,
        height=16,
        near=0.04,
        far=0.5,
        delay_steps=(0, 1),
        pos_jitter=0.003,
        angle_jitter_deg=1.0,
        noise=0.01,
        missing=0.01,
    )


def make_task() -> Task:
    """Build the task."""
    base = panda_lift.make_task()
    sensed = base.vectors["actor"].terms
    proprioception = {name: term for name, term in sensed.items() if name not in CUBE_TERMS}
    learner = {
        "num_steps": 24,
        "max_iterations": 250,
        "actor_groups": ["actor", WRIST],
        "actor.conv.groups": [WRIST],
    }
    return dataclasses.replace(
        base,
        name="panda_lift_vision",
        summary="Franka Panda lifts a cube that it sees by a depth camera at its wrist; a student of panda_lift",
        observations={
            "actor": ObservationGroup(terms=proprioception),
            WRIST: ImageGroup(camera=wrist_camera()),
            "critic": base.observations["critic"],
        },
        num_envs=(256, 2048),
        learner=learner | {"ppo.entropy_coef": 0.002, "actor.init_std": 0.5},
        presets={
            "distill": learner
            | {
                "actor.hidden": [128, 128],
                "critic.hidden": [128, 128],
                # Little noise, and the teacher's hand when the student errs: the teacher's actions are of use only
                # near the states that it knows itself. Without, the arm drifted off and nothing was learned.
                "actor.init_std": 0.1,
                "actor.max_std": 0.15,
                "teacher.policy": "panda_lift",
                "teacher.mix": 1.0,
                "teacher.takeover": 1.0,
                "ppo.value_coef": 0.0,
                "ppo.epochs": 4,
                "ppo.minibatches": 8,
                "ppo.schedule": "linear",
                "ppo.learning_rate": 1e-3,
            }
        },
        learner_name="distill",
    )
