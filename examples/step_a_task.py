"""Step a task with any policy of your own: worlds, observations and rewards are torch tensors.

python examples/step_a_task.py
"""

import torch

import robot_rl as rr

env = rr.make("go2_flat", num_envs=16, device="cpu")
obs, total = env.reset(), torch.zeros(16)
for _ in range(50):
    actions = torch.zeros(env.num_envs, env.num_actions)  # Hold the default pose.
    obs, reward, done, extras = env.step(actions)
    total += reward
print({name: tuple(value.shape) for name, value in obs.items()})
print(f"mean return of a second: {total.mean():.3f}")
env.close()
