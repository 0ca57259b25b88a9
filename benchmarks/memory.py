"""Cost of a memory: the time of one core for a rollout's actions, for an update, and for one layer by itself.

    python benchmarks/memory.py > benchmarks/memory.json

1024 worlds, 24 steps, 5 epochs of 4 minibatches; actor (48 numbers) and critic (64) of 128-128-128, without a memory
and with one each. The layer: one pass forward and back over 24 steps of 1024 worlds with 48 numbers, ours, a loop of
PyTorch's operations with autograd, and PyTorch's own layer, which knows no ends of episodes. Processor time, which
other programs disturb least.
"""

from __future__ import annotations

import json
import platform

import torch
from harness import least_cpu_s

from robot_rl.learn.algorithms.ppo.config import PPOLearnerCfg
from robot_rl.learn.algorithms.ppo.ppo import PPO, make_networks
from robot_rl.learn.dims import EnvSpec
from robot_rl.learn.networks.memory import Memory
from robot_rl.learn.rollout import make_rollout
from robot_rl.settings import MemoryCfg, NetworkCfg

WORLDS, STEPS, REPEATS = 1024, 24, 5
DIMS = EnvSpec(actor=48, critic=64, action=12)
MEMORIES = (("none", 128), ("gru", 128), ("gru", 256), ("lstm", 128), ("lstm", 256))


def measure(kind: str, hidden: int, sequence: int = 0) -> dict[str, float]:
    """Return the times of acting and of an update [s]."""
    network = NetworkCfg(hidden=(128, 128, 128), memory=MemoryCfg(kind=kind, hidden=hidden, sequence=sequence))
    cfg = PPOLearnerCfg(num_steps=STEPS, actor=network, critic=network)
    actor, critic = make_networks(cfg, DIMS, None, torch.Generator().manual_seed(0))
    ppo, rollout = PPO(actor, critic, cfg.ppo), make_rollout(STEPS, WORLDS, DIMS, "cpu")
    rollout.hold_states(cfg.sequence, actor.state_size, critic.state_size)
    for tensor in (rollout.actor_obs, rollout.critic_obs, rollout.final_obs, rollout.noise, rollout.reward):
        tensor.normal_()
    rollout.done.copy_(torch.rand(STEPS, WORLDS) < 0.01)
    state = torch.zeros(WORLDS, actor.state_size) if actor.state_size else None

    @torch.no_grad()
    def act() -> None:
        for t in range(STEPS):
            action, out = actor.act(rollout.actor_obs[t], rollout.noise[t], None, state)
            rollout.action[t].copy_(action)
            rollout.out[t].copy_(out)
            if state is not None:
                state.masked_fill_(rollout.ended(t)[:, None], 0.0)
        rollout.record_policy(actor.distribution, actor.distribution.snapshot())

    return {"act_s": least_cpu_s(act, REPEATS), "update_s": least_cpu_s(lambda: ppo.update(rollout), REPEATS)}


def layer(kind: str, hidden: int) -> dict[str, float]:
    """Return the times of a layer's pass forward and back [s]."""
    memory = Memory(48, MemoryCfg(kind=kind, hidden=hidden))
    x, state = torch.randn(STEPS, WORLDS, 48), torch.zeros(WORLDS, memory.state_size)
    start = torch.rand(STEPS, WORLDS) < 0.01
    (cell,), (parts,) = memory._cells(), memory._split(state)
    theirs = (torch.nn.GRU if kind == "gru" else torch.nn.LSTM)(48, hidden)
    return {
        "ours_s": least_cpu_s(lambda: memory.sequence(x, state, start).square().sum().backward(), REPEATS),
        "loop_s": least_cpu_s(lambda: cell.plain(x, parts, start)[0].square().sum().backward(), REPEATS),
        "pytorch_s": least_cpu_s(lambda: theirs(x)[0].square().sum().backward(), REPEATS),
    }


def main() -> None:
    """Measure every case and print JSON."""
    torch.set_num_threads(1)
    machine = {"processor": platform.processor() or platform.machine(), "torch": torch.__version__}
    cases = {f"{kind} {hidden}": measure(kind, hidden) for kind, hidden in MEMORIES}
    cases["gru 128, sequences of 8"] = measure("gru", 128, 8)
    layers = {f"{kind} {hidden}": layer(kind, hidden) for kind, hidden in MEMORIES[1:]}
    print(
        json.dumps({"machine": machine, "worlds": WORLDS, "steps": STEPS, "cases": cases, "layers": layers}, indent=1)
    )


if __name__ == "__main__":
    main()
