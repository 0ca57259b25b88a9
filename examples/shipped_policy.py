"""Let a trained Go2 walk forward at half a meter a second.

python examples/shipped_policy.py
"""

import robot_rl as rr

policy = rr.load("go2_flat")
env = policy.make_env(num_envs=4)
act, obs = policy.on(env), env.reset()
env.set_command((0.5, 0.0, 0.0))
for _ in range(100):
    obs, _, done, _ = env.step(act(obs))
print(policy)
print(f"forward velocity after 2 s: {env.state.base_lin_vel_b[:, 0].mean():.2f} m/s")
env.close()
