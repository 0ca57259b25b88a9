"""Cost of convolutional encoders: the time of one core for a rollout's actions and for an update, by observation.

    python benchmarks/encoders.py > benchmarks/encoders.json

24 steps; 5 epochs of 4 minibatches; actor and critic of 128-128-128, which both see 45 numbers and the image, once
through an encoder of the default settings and once as a vector. Processor time, which other programs disturb least.
"""

from __future__ import annotations

import json
import platform

import torch
from harness import least_cpu_s

from robot_rl.learn.algorithms.ppo.config import PPOCfg
from robot_rl.learn.algorithms.ppo.ppo import PPO
from robot_rl.learn.dims import EnvSpec
from robot_rl.learn.networks.actor_critic import Actor, Critic
from robot_rl.learn.networks.layout import ObservationLayout
from robot_rl.learn.rollout import make_rollout
from robot_rl.settings import ConvCfg, NetworkCfg

CASES = {"depth 64 x 64": ((64, 64), 256), "height scan 11 x 17": ((11, 17), 1024)}
STEPS, NUMBERS, ACTIONS, REPEATS = 24, 45, 12, 3


def measure(side: tuple[int, int], worlds: int, *, encoded: bool) -> dict[str, float]:
    """Return the times of acting and of an update, and the share that picking minibatches takes of that [s]."""
    layout = ObservationLayout({"actor": (NUMBERS,), "eye": (1, *side)})
    cfg = NetworkCfg(hidden=(128, 128, 128), conv=ConvCfg(groups=("eye",) if encoded else ()))
    actor, critic = Actor(layout, ACTIONS, cfg), Critic(layout, cfg)
    ppo = PPO(actor, critic, PPOCfg())
    dims = EnvSpec(actor=layout.size, critic=layout.size, action=ACTIONS)
    rollout = make_rollout(STEPS, worlds, dims, "cpu")
    for tensor in (rollout.actor_obs, rollout.critic_obs, rollout.final_obs, rollout.noise, rollout.reward):
        tensor.normal_()

    @torch.no_grad()
    def act() -> None:
        for t in range(STEPS):
            action, out = actor.act(rollout.actor_obs[t], rollout.noise[t])[:2]
            rollout.action[t].copy_(action)
            rollout.out[t].copy_(out)
        rollout.record_policy(actor.distribution, actor.distribution.snapshot())

    result = {"act_s": least_cpu_s(act, REPEATS), "update_s": least_cpu_s(lambda: ppo.update(rollout), REPEATS)}
    batch, rows = ppo.make_batch(rollout), torch.randperm(STEPS * worlds)[: STEPS * worlds // 4]
    return result | {"minibatches_s": least_cpu_s(lambda: [batch.rows(rows) for _ in range(20)], REPEATS)}


def main() -> None:
    """Measure every case and print JSON."""
    torch.set_num_threads(1)
    machine = {"processor": platform.processor() or platform.machine(), "torch": torch.__version__}
    found = {
        name: {
            "worlds": worlds,
            "encoder": measure(side, worlds, encoded=True),
            "vector": measure(side, worlds, encoded=False),
        }
        for name, (side, worlds) in CASES.items()
    }
    print(json.dumps({"machine": machine, "steps": STEPS, "cases": found}, indent=1))


if __name__ == "__main__":
    main()
