"""What Gymnasium's MuJoCo tasks of version 5 have in common here: see the folders `ant_v5`, `half_cheetah_v5`, ...

A step's observation, reward and end are Gymnasium's: `tests/parity/test_gymnasium_v5.py` compares them step by step.
Rewards are weights per second everywhere, so a weight of a step is divided by the control period. Actions beyond the
motors' range are clipped to it before anything reads them, as Gymnasium's `ClipAction` wrapper does.
"""

from typing import Any

from robot_rl_assets.gymnasium_v5 import MIRRORS, gymnasium_robot
from robot_rl_envs.mdp import gymnasium
from robot_rl_envs.task import Actions, Event, Metric, Observation, ObservationGroup, Reward, Sim, Task, Termination

STEPS = 1000
"""Control steps of an episode."""
NO_LIMIT = 1.0e30
"""A bound that nothing reaches, if a finite number is required."""
SAMPLES = 2048
"""Control steps of a rollout, over all worlds."""
LEARNER = {
    "max_iterations": -(-1_000_000 // SAMPLES),
    "critic_groups": ["actor"],
    "actor.hidden": [64, 64],
    "critic.hidden": [64, 64],
    "actor.activation": "tanh",
    "critic.activation": "tanh",
    "normalize_values": True,
    "ppo.schedule": "linear",
    "ppo.epochs": 10,
    "ppo.minibatches": 8,
    "ppo.entropy_coef": 0.0,
}
"""A million steps with small networks."""
MIRRORED = {"ppo.learning_rate": 5e-4, "symmetry": "network"}
LEARNERS: dict[str, tuple[int, float, dict[str, Any]]] = {
    "half_cheetah_v5": (64, 0.5, {"ppo.learning_rate": 1e-3}),
    "walker2d_v5": (16, 0.4, {"ppo.learning_rate": 4e-4, "ppo.minibatches": 16}),
    "hopper_v5": (64, 0.4, {"ppo.learning_rate": 5e-4}),
    "ant_v5": (64, 0.3, MIRRORED | {"ppo.epochs": 8}),
    "humanoid_v5": (128, 0.4, MIRRORED | {"ppo.epochs": 7}),
}
"""Further settings of each robot: worlds, the deviation at the start as a share of the motors' control, settings.

All do better from small actions. With the mirror the return of Ant doubled, and a humanoid learned to walk. Walker2d
reached 2900 to 4600 in three seeds from rollouts of 128 steps in 16 worlds, where 32 steps in 64 gave 1400 to 4200.
A step of many humanoids at once takes 0.8 of the time of half as many, twice.
"""

TRANSITIONS_PER_UPDATE = 16
"""Transitions for each gradient step of FlashSAC: a million in half an hour on two cores."""
FLASHSAC_STEPS = 8
"""Control steps of a rollout of FlashSAC."""
FLASHSAC = {
    "num_steps": FLASHSAC_STEPS,
    "critic_groups": ["actor"],
    "save_interval": 1000,
    "flashsac.gamma": 0.97,
    "flashsac.batch": 256,
    "flashsac.learning_rate": 1e-3,
    "flashsac.final_learning_rate": 3e-4,
    "flashsac.tau": 0.05,
    "flashsac.temperature": 0.001,
    "flashsac.noise_repeat": 1,
    "flashsac.policy_width": 64,
    "flashsac.replay": 1_000_000,
}
"""A million steps, all of which stay in the replay memory; tuned on HalfCheetah."""

WORLD_MODEL_SAMPLES = 512
"""Control steps of a rollout of the learner of a world, over all worlds."""


def observed(fn: Any, clip: float = NO_LIMIT) -> Observation:
    """An observation as it is, within +-clip."""
    return Observation(fn, clip=clip)


def rewards_of_a_step(sim: Sim, terms: dict[str, tuple[Any, float, dict[str, Any]]]) -> dict[str, Reward]:
    """Rewards from their weights in one control step.

    Args:
        sim: physics options, with the control period.
        terms: name -> term, its weight in a step, its parameters.
    """
    return {name: Reward(fn, weight=weight / sim.step_dt, **given) for name, (fn, weight, given) in terms.items()}


def make_gymnasium_task(
    name: str,
    *,
    summary: str,
    sim: Sim,
    control: float,
    observations: dict[str, Observation],
    rewards: dict[str, tuple[Any, float, dict[str, Any]]],
    noise: Event,
    unhealthy: Termination | None = None,
) -> Task:
    """A task of Gymnasium's.

    Args:
        name: the task's name: the robot's and "_v5".
        summary: one line for ``robot-rl list``.
        sim: the model file's own physics options, and Gymnasium's ``frame_skip`` as decimation.
        control: bound of the motors' control.
        observations: the observed quantities, in Gymnasium's order.
        rewards: name -> term, its weight in a step, its parameters.
        noise: how an episode starts.
        unhealthy: the conditions that end it.
    """
    worlds, share, settings = LEARNERS[name]
    rollout = {"num_steps": SAMPLES // worlds, "actor.init_std": share * control}
    off_policy = {
        "max_iterations": -(-1_000_000 // (worlds * FLASHSAC_STEPS)),
        "flashsac.updates": worlds / TRANSITIONS_PER_UPDATE,
    }
    imagined = {
        "num_steps": WORLD_MODEL_SAMPLES // worlds,
        "critic_groups": ["actor"],
        "actor.distribution": "squashed",
        "actor.bound": control,
        "actor.init_std": 0.5,
        "world_model.gamma": 0.99,
        "world_model.warm_up": 4000,
    }
    if unhealthy is not None:  # Where a fall ends an episode, longer and larger steps throw the robot forward.
        imagined |= {"world_model.horizon": 24, "world_model.learning_rate": 1e-3, "world_model.critic_steps": 16}
    return Task(
        name=name,
        summary=summary,
        robot=gymnasium_robot(name.removesuffix("_v5")),
        sim=sim,
        episode_length_s=STEPS * sim.step_dt,
        actions=Actions(kind="direct", clip=control),
        observations={"actor": ObservationGroup(terms=observations)},
        rewards=rewards_of_a_step(sim, rewards),
        terminations={} if unhealthy is None else {"unhealthy": unhealthy},
        events={"noise": noise},
        metrics={"speed": Metric(gymnasium.first_vel)},
        mirror=name.removesuffix("_v5") in MIRRORS,
        num_envs=(worlds, 2048),
        learner=LEARNER | rollout | settings,
        presets={"flashsac": FLASHSAC | off_policy, "world_model": imagined},
        deployable=False,
    )
