"""A robot that takes no time to compile: a box that floats, with a paddle on a hinge."""

import dataclasses

import pytest
import torch
from robot_rl_assets.robot import Joint, Robot

PUCK = """
<mujoco model="puck">
  <worldbody>
    <body name="trunk" pos="0 0 0.1">
      <freejoint name="root"/>
      <inertial pos="0 0 0" mass="2" diaginertia="0.02 0.02 0.02"/>
      <geom name="shell" type="box" size="0.1 0.1 0.1" contype="0" conaffinity="1"/>
      <body name="paddle" pos="0.1 0 0.05">
        <inertial pos="0.1 0 0" mass="0.2" diaginertia="0.001 0.001 0.001"/>
        <joint name="paddle" axis="0 1 0" range="-1 1" damping="0.1"/>
        <geom name="blade" type="box" size="0.05 0.05 0.01" pos="0.1 0 0" contype="0" conaffinity="1"/>
      </body>
    </body>
  </worldbody>
</mujoco>
"""


def hinge(name: str) -> Joint:
    """The paddle's joint."""
    return Joint(name=name, default_pos=0.0, kp=5.0, kd=0.1, effort_limit=2.0, velocity_limit=10.0, action_scale=0.3)


@pytest.fixture(scope="session")
def puck(tmp_path_factory) -> Robot:
    """The robot."""
    path = tmp_path_factory.mktemp("puck") / "puck.xml"
    path.write_text(PUCK)
    return Robot(name="puck", model=path, joints=(hinge("paddle"),), base_body="trunk", base_height=0.1)


@pytest.fixture(scope="session")
def puck_task(puck):
    """make(count, **fields): a task of so many pucks in a row, 1 m apart; of one without `robots` where count is 0."""
    from robot_rl_envs.agents import Agent
    from robot_rl_envs.mdp import events, observations, rewards, terminations
    from robot_rl_envs.task import Event, Observation, ObservationGroup, Reward, Task, Termination

    def make(count: int, **fields) -> Task:
        seen = {
            "joint": Observation(observations.joint_pos_rel, noise=0.01),
            "pos": Observation(observations.base_height),
        }
        team = {f"p{k}": Agent(robot=puck, pos=(1.0 * k, 0.0, 0.0)) for k in range(count)}
        values = {
            "name": "pucks",
            "rewards": {"height": Reward(rewards.joint_vel_size, weight=-0.1)},
            "observations": {
                "actor": ObservationGroup(terms=seen),
                "critic": ObservationGroup(terms={**seen, "vel": Observation(observations.base_lin_vel)}, noise=False),
            },
            "events": {
                "base": Event(events.reset_base, xy=0.1, yaw=0.3, velocity=0.1),
                "mass": Event(events.base_mass, mode="startup", body="trunk", mass=0.1, com=0.0),
                "push": Event(events.push, mode="interval", interval_s=(0.1, 0.3), xy=0.3, yaw=0.2),
            },
            "terminations": {"low": Termination(terminations.base_below, height=-1.0)},
            "episode_length_s": 1.0,
        }
        values |= {"robots": team} if count else {"robot": puck}
        return Task(**values | fields)

    return make


@pytest.fixture
def walk():
    """walk(env, steps, seed): what so many steps of random actions return, cloned."""

    def run(env, steps: int, seed: int = 0, size: float = 1.0) -> list[dict[str, torch.Tensor]]:
        generator, found = torch.Generator().manual_seed(seed), []
        for _ in range(steps):
            action = size * torch.randn(env.num_envs, env.num_actions, generator=generator)
            obs, reward, done, extras = env.step(action)
            row = {name: obs[name].clone() for name in obs.keys()}  # noqa: SIM118, a TensorDict
            row |= {f"final_{name}": torch.where(done[:, None], extras["final_obs"][name], 0.0) for name in row}
            row |= {"reward": reward.clone(), "done": done.clone()}
            found.append(row | {name: extras[name].clone() for name in ("time_outs", "valid")})
        return found

    return run


@pytest.fixture
def with_fields():
    """with_fields(task, **fields): a copy with other fields."""
    return dataclasses.replace
