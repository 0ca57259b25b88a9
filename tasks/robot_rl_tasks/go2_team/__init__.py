"""Two to eight Unitree Go2 walk in formation through a gap; robots may fall out, and late ones join."""

from robot_rl_assets.registry import get_robot
from robot_rl_envs.agents import Agent, Team
from robot_rl_envs.mdp import events, objects, observations, rewards, team, terminations
from robot_rl_envs.objects import Articulated, Box, Contact, Object
from robot_rl_envs.task import Actions, Command, Event, Metric, Observation, Reward, Sim, Task, Termination

from robot_rl_tasks import legged

GAIT_HZ = 2.0
BASE_BODY = "base_link"
ROW_M, LANE_M = 0.95, 0.4
"""Distance of the formation's rows, and of its two lanes from the middle [m]."""
GAP_X, GAP_M = 3.0, 1.6
"""Where the gap is, and how wide [m]."""
WALL = (0.2, 3.0, 0.5)
NAMES = ("one", "two", "three", "four", "five", "six", "seven", "eight")


def _robots() -> dict[str, Agent]:
    go2 = get_robot("unitree_go2")
    return {
        name: Agent(robot=go2, pos=(-ROW_M * (k // 2), LANE_M if k % 2 == 0 else -LANE_M, 0.0))
        for k, name in enumerate(NAMES)
    }


def _walls() -> dict[str, Object | Articulated]:
    side = (GAP_M + WALL[1]) / 2
    return {
        name: Box(size=WALL, pos=(GAP_X, sign * side, WALL[2] / 2), fixed=True, rgba=(0.55, 0.57, 0.6, 1.0))
        for name, sign in (("left_wall", 1.0), ("right_wall", -1.0))
    }


def _observations() -> dict:
    sensed = legged.proprioception(
        command=Observation(observations.velocity_command),
        clock=Observation(observations.gait_clock, frequency_hz=GAIT_HZ),
        others=Observation(team.others_pos, noise=0.02, clip=10.0, measured="others"),
    )
    privileged = {
        "lin_vel": Observation(observations.base_lin_vel),
        "height": Observation(observations.base_height),
        "contact": Observation(observations.foot_contact),
        "foot_height": Observation(observations.foot_height),
        "wall": Observation(objects.object_pos, object="left_wall"),
    }
    return legged.actor_and_critic(sensed, privileged)


def _rewards() -> dict[str, Reward]:
    return {
        "formation": Reward(team.keeps_formation, weight=1.0, std=0.3, credit="team"),
        "track": Reward(rewards.track_lin_vel, weight=2.5, std=0.4),
        "yaw": Reward(rewards.track_yaw_rate, weight=0.7, std=0.5),
        "gait": Reward(rewards.trot_contact, weight=1.0, frequency_hz=GAIT_HZ),
        "swing": Reward(rewards.trot_height, weight=1.2, frequency_hz=GAIT_HZ, height=0.07),
        "touch": Reward(objects.touches, weight=-1.0, contact="others", force=1.0),
        **legged.smooth_trot(flat=-2.0),
    }


def _march() -> Command:
    return Command(
        team.march,
        team=True,
        resample_s=(100.0, 100.0),
        speed_lo=0.4,
        speed_hi=0.8,
        gain=1.0,
        turn_gain=1.5,
        vx_lo=-0.8,
        vx_hi=1.0,
        vy_lo=-0.4,
        vy_hi=0.4,
        yaw_lo=-0.8,
        yaw_hi=0.8,
    )


def make_task() -> Task:
    """Build the task."""
    return Task(
        name="go2_team",
        summary="Two to eight Unitree Go2 walk in formation through a gap; some fall out, late ones join",
        robots=_robots(),
        team=Team(size=(2, 8), joins=0.3, join_s=(2.0, 6.0)),
        objects=_walls(),
        contacts={"others": Contact(first="robot", second="others")},
        sim=Sim(timestep=0.02 / 3, decimation=3, iterations=5, ls_iterations=8),
        episode_length_s=12.0,
        actions=Actions(kind="position", scale=2.0),
        observations=_observations(),
        rewards=_rewards(),
        terminations={
            "tilted": Termination(terminations.tilted, limit_rad=1.0, scope="robot"),
            "low": Termination(terminations.base_below, height=0.15, scope="robot"),
        },
        commands={"march": _march()},
        events=legged.randomization(
            BASE_BODY,
            least_friction=0.5,
            base=Event(events.reset_base, xy=0.08, yaw=0.2, velocity=0.2),
            joints=Event(events.reset_joints, position=0.1, velocity=0.2),
        )
        | {"push": Event(events.push, mode="interval", interval_s=(5.0, 9.0), xy=0.4, yaw=0.2)},
        metrics={
            "formation_error": Metric(team.formation_error, after_s=1.0),
            "passed": Metric(team.passed, over="end", x=GAP_X),
            "lin_vel_error": legged.velocity_errors()["lin_vel_error"],
            "collides": Metric(team.collides, contact="others", force=1.0),
            "team_size": Metric(team.team_size),
        },
        only_positive_rewards=True,
        num_envs=(64, 1024),
        learner={
            "num_steps": 24,
            "max_iterations": 500,
            "ppo.entropy_coef": 0.005,
            "ppo.schedule": "linear",
            "ppo.learning_rate": 1e-3,
            "actor.init_std": 0.5,
        },
        learner_cpu={"actor.hidden": [128, 128], "critic.hidden": [128, 128]},
        learner_name="mappo",
        solved=("tracking/lin_vel_error", 0.25),
    )
