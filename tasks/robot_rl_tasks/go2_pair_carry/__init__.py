"""Two Unitree Go2 carry a board on their backs to a goal that moves, on flat ground."""

from robot_rl_assets.registry import get_robot
from robot_rl_envs.agents import Agent
from robot_rl_envs.mdp import carrying, events, objects, observations, rewards, team, terminations
from robot_rl_envs.objects import Box, Contact
from robot_rl_envs.task import Actions, Command, Event, Metric, Observation, Reward, Sim, Task, Termination

from robot_rl_tasks import legged

GAIT_HZ = 2.0
BASE_BODY = "base_link"
BOARD = Box(size=(1.3, 0.24, 0.03), mass=2.5, pos=(0.0, 0.0, 0.366), friction=1.0, condim=4, spin_friction=0.05)
"""Rests on both backs: a standing Go2's is 0.346 m high."""
APART = 0.42
"""Distance of each robot from the middle of the board [m]."""
DROPPED = 0.25
"""Height of the board that has fallen off a back [m]."""


def _observations() -> dict:
    sensed = legged.proprioception(
        command=Observation(observations.velocity_command),
        clock=Observation(observations.gait_clock, frequency_hz=GAIT_HZ),
        board=Observation(objects.object_pos, object="board", noise=0.01, measured="board"),
        axis=Observation(carrying.object_axis, object="board", noise=0.02, measured="board_axis"),
    )
    privileged = {
        "lin_vel": Observation(observations.base_lin_vel),
        "height": Observation(observations.base_height),
        "contact": Observation(observations.foot_contact),
        "foot_height": Observation(observations.foot_height),
        "board_vel": Observation(carrying.object_velocity, object="board"),
    }
    return legged.actor_and_critic(sensed, privileged)


def _rewards() -> dict[str, Reward]:
    return {
        "goal": Reward(carrying.object_near_goal, weight=1.0, std=0.5, object="board", credit="team"),
        "place": Reward(carrying.keeps_place, weight=1.5, std=0.1, object="board"),
        "tilt": Reward(carrying.object_tilt, weight=-5.0, object="board", credit="team"),
        "track": Reward(rewards.track_lin_vel, weight=2.0, std=0.4),
        "yaw": Reward(rewards.track_yaw_rate, weight=0.7, std=0.5),
        "gait": Reward(rewards.trot_contact, weight=1.0, frequency_hz=GAIT_HZ),
        "swing": Reward(rewards.trot_height, weight=1.0, frequency_hz=GAIT_HZ, height=0.06),
        **legged.smooth_trot(flat=-3.0),
    }


def _events() -> dict[str, Event]:
    return legged.randomization(
        BASE_BODY,
        least_friction=0.5,
        joints=Event(events.reset_joints, position=0.05, velocity=0.1),
        board=Event(
            objects.reset_object,
            team=True,
            object="board",
            x_lo=-0.03,
            x_hi=0.03,
            y_lo=-0.02,
            y_hi=0.02,
            z_lo=0.0,
            z_hi=0.0,
            yaw=0.03,
        ),
        board_friction=Event(objects.object_friction, team=True, object="board", lo=0.8, hi=1.2),
    )


def _goal() -> Command:
    return Command(
        carrying.carry_to_goal,
        team=True,
        resample_s=(100.0, 100.0),
        object="board",
        distance_lo=0.5,
        distance_hi=2.0,
        goal_speed=0.2,
        gain=1.0,
        turn_gain=1.5,
        vx_lo=-0.6,
        vx_hi=0.6,
        vy_lo=-0.4,
        vy_hi=0.4,
        yaw_lo=-0.6,
        yaw_hi=0.6,
    )


def make_task() -> Task:
    """Build the task."""
    go2 = get_robot("unitree_go2")
    return Task(
        name="go2_pair_carry",
        summary="Two Unitree Go2 carry a board on their backs to a goal that moves",
        robots={
            "front": Agent(robot=go2, pos=(APART, 0.0, 0.0)),
            "rear": Agent(robot=go2, pos=(-APART, 0.0, 0.0)),
        },
        objects={"board": BOARD},
        contacts={"others": Contact(first="robot", second="others")},
        sim=Sim(timestep=0.005, decimation=4, iterations=8, ls_iterations=8),
        episode_length_s=12.0,
        actions=Actions(kind="position", scale=2.0),
        observations=_observations(),
        rewards=_rewards(),
        terminations={
            "tilted": Termination(terminations.tilted, limit_rad=1.0),
            "low": Termination(terminations.base_below, height=0.15),
            "dropped": Termination(objects.object_below, object="board", height=DROPPED),
        },
        commands={"goal": _goal()},
        events=_events(),
        metrics={
            "delivered": Metric(carrying.object_delivered, over="end", object="board", distance=0.3, height=DROPPED),
            "goal_error": Metric(carrying.goal_error, over="end", object="board"),
            "place_error": Metric(carrying.place_distance, after_s=1.0, object="board"),
            "collides": Metric(team.collides, contact="others", force=1.0),
        },
        only_positive_rewards=True,
        num_envs=(256, 2048),
        learner={
            "num_steps": 24,
            "max_iterations": 600,
            "ppo.entropy_coef": 0.005,
            "ppo.schedule": "linear",
            "ppo.learning_rate": 1e-3,
            "actor.init_std": 0.5,
        },
        learner_cpu={"actor.hidden": [128, 128], "critic.hidden": [128, 128]},
        learner_name="mappo",
        solved=("tracking/delivered", 0.8),
    )
