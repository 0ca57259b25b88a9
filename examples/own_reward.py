"""Add a reward of your own to a task and train it, without a file of the project: half a minute.

python examples/own_reward.py [iterations]
"""

import sys

from robot_rl_envs.task import Reward, Task
from robot_rl_envs.terms import State, reward
from robot_rl_tasks.registry import get_task

import robot_rl as rr


@reward
def gentle(s: State, i: int, joint: float, speed: float) -> float:
    """1 / (1 + (v / speed)^2) of one joint: 1 at rest, 1/2 at speed [m/s or rad/s]."""
    ratio = s.joint_vel[i, int(joint)] / speed
    return 1.0 / (1.0 + ratio * ratio)


def gentle_cartpole() -> Task:
    """Return the cart-pole with a cart that moves gently."""
    task = get_task("cartpole")
    task.name = "gentle_cartpole"
    task.rewards["gentle"] = Reward(gentle, weight=0.1, joint="slider", speed=1.0)
    return task


if __name__ == "__main__":
    iterations = int(sys.argv[1]) if len(sys.argv) > 1 else 100
    run = rr.train("own_reward:gentle_cartpole", max_iterations=iterations)
    print(run, f"reward/gentle {run.metrics[-1]['reward/gentle']:.3f}")
