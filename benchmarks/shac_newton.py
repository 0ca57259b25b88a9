"""Policies by the gradient of Newton's differentiable solver, for docs/newton_gradients.md.

    pip install newton==1.8.0      # without its extra `sim`, which needs an older MuJoCo
    python benchmarks/shac_newton.py task=cartpole seeds=1,2,3 iterations=300
    python benchmarks/shac_newton.py task=ant_v5 seeds=1,2 iterations=400
    python benchmarks/shac_newton.py task=ant_v5 seeds=1 iterations=200 horizon=32

SHAC (Xu et al., arXiv 2204.07137): a stochastic policy acts for a horizon of steps, the discounted rewards and a target
critic's value after the last one go back through the simulator, and the critic learns by TD(lambda). A policy without
noise is then measured over whole episodes of 100 worlds in Newton, and as it is in this project's environment of the
same task on MuJoCo. Results of a task replace its earlier ones in the file.
"""

from __future__ import annotations

import json
import sys
import time
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch
from newton_world import TASKS, World
from torch import Tensor, nn
from words import read_words

from robot_rl.files import write_atomic
from robot_rl.machine import machine_facts, package_versions

KNOWN = {"task": "cartpole", "seeds": "1", "iterations": "300", "horizon": "0", "out": "benchmarks/shac_newton.json"}
EPISODES = 100
SETTINGS: dict[str, dict[str, Any]] = {
    "cartpole": {"worlds": 32, "horizon": 32, "gamma": 0.98, "actor": 1e-2, "critic": 1e-3, "hidden": (64, 64)},
    "ant_v5": {"worlds": 64, "horizon": 8, "gamma": 0.99, "actor": 2e-3, "critic": 2e-3, "hidden": (128, 64)},
}
LAMBDA, TARGET, MAX_NORM = 0.95, 0.2, 1.0
"""Of TD(lambda), of the target critic (the share of the critic after an iteration), and of the policy's gradient."""
CRITIC_EPOCHS, MINIBATCHES = 8, 4


class Agent(nn.Module):
    """Policy, critic, target critic and the normalizer of observations."""

    def __init__(self, obs: int, actions: int, hidden: tuple[int, ...], mirror: tuple[float, ...] | None) -> None:
        """Build the networks; actions are tanh of a normal variable, and odd where the task has a mirror."""
        super().__init__()
        self.mirror = None if mirror is None else torch.tensor(mirror)
        self.actor, self.critic, self.target = (make_mlp(obs, hidden, n) for n in (actions, 1, 1))
        self.target.load_state_dict(self.critic.state_dict())
        self.log_std = nn.Parameter(torch.full((actions,), -1.0))
        self.register_buffer("count", torch.tensor(1e-4))
        self.register_buffer("mean", torch.zeros(obs))
        self.register_buffer("var", torch.ones(obs))

    def normalize(self, obs: Tensor) -> Tensor:
        """Return observations in their deviations, within +-10."""
        return ((obs - self.mean) / (self.var + 1e-5).sqrt()).clamp(-10.0, 10.0)

    def act(self, obs: Tensor, noise: Tensor | float = 0.0) -> Tensor:
        """Return actions (N, A) for normalized observations."""
        mean = self.actor(obs)
        if self.mirror is not None:
            mean = 0.5 * (mean - self.actor(obs * self.mirror))
        return torch.tanh(mean + noise * self.log_std.exp())

    @torch.no_grad()
    def see(self, obs: Tensor) -> None:
        """Add raw observations (M, D) to mean and variance."""
        total = self.count + len(obs)
        delta, share = obs.mean(0) - self.mean, len(obs) / total
        self.var += share * (obs.var(0, unbiased=False) - self.var + (1.0 - share) * delta.square())
        self.mean += share * delta
        if self.mirror is not None:
            self.mean *= self.mirror > 0.0
        self.count.copy_(total)


def make_mlp(size: int, hidden: tuple[int, ...], out: int) -> nn.Sequential:
    """Return a perceptron that begins near zero."""
    layers: list[nn.Module] = []
    for wide, narrow in zip((size, *hidden[:-1]), hidden, strict=True):
        layers += [nn.Linear(wide, narrow), nn.ELU()]
    last = nn.Linear(hidden[-1], out)
    with torch.no_grad():
        last.weight.mul_(0.1)
    return nn.Sequential(*layers, last)


class Shac:
    """The worlds of a training and what learns in them."""

    def __init__(self, name: str, seed: int) -> None:
        """Start all episodes at another step of their time limit."""
        torch.manual_seed(seed)
        self.task, self.cfg = TASKS[name](), SETTINGS[name]
        self.generator = torch.Generator().manual_seed(seed)
        self.world = World(self.task, self.cfg["worlds"], self.cfg["horizon"])
        self.q, self.qd = self.task.start(self.cfg["worlds"], self.generator)
        self.age = torch.randint(self.task.limit, (self.cfg["worlds"],), generator=self.generator)
        size = self.task.observe(self.q, self.qd).shape[1]
        self.agent = Agent(size, self.task.actions, self.cfg["hidden"], self.task.mirror)
        learned = [*self.agent.actor.parameters(), self.agent.log_std]
        self.actor_optimizer = torch.optim.Adam(learned, lr=self.cfg["actor"], betas=(0.7, 0.95))
        self.critic_optimizer = torch.optim.Adam(
            self.agent.critic.parameters(), lr=self.cfg["critic"], betas=(0.7, 0.95)
        )

    def iterate(self, progress: float) -> dict[str, float]:
        """Improve policy and critic once; return what was seen on the way."""
        for optimizer, name in ((self.actor_optimizer, "actor"), (self.critic_optimizer, "critic")):
            optimizer.param_groups[0]["lr"] = self.cfg[name] * (1.0 - 0.9 * progress)
        loss, kept, found = self._roll_out()
        self.actor_optimizer.zero_grad()
        loss.backward()
        learned = self.actor_optimizer.param_groups[0]["params"]
        norm = float(nn.utils.clip_grad_norm_(learned, MAX_NORM))
        if norm < float("inf"):
            self.actor_optimizer.step()
        self._improve_critic(kept)
        self.agent.see(kept["raw"].flatten(0, 1))
        return found | {"gradient_norm": norm}

    def _roll_out(self) -> tuple[Tensor, dict[str, Tensor], dict[str, float]]:
        """Return the policy's loss, what the critic learns from, and means over the horizon."""
        task, agent, gamma, steps = self.task, self.agent, self.cfg["gamma"], self.cfg["horizon"]
        q, qd, worth = self.q.detach(), self.qd.detach(), torch.ones(self.cfg["worlds"])
        loss, kept, measured = torch.zeros(()), [], torch.zeros(())
        for t in range(steps):
            raw = task.observe(q, qd)
            obs = agent.normalize(raw)
            action = agent.act(obs, torch.randn(len(q), task.actions, generator=self.generator))
            before = q
            q, qd = self.world.step(t, q, qd, action)
            reward = task.reward(before, q, qd, action)
            value = agent.target(agent.normalize(task.observe(q, qd)))[:, 0]
            self.age += 1
            failed = task.failed(q) | ~q.isfinite().all(1)
            ended = failed | (self.age >= task.limit)
            leaves = ended if t < steps - 1 else torch.ones_like(ended)
            gain = worth * (reward + gamma * torch.where(leaves & ~failed, value, 0.0))
            loss = loss - gain[q.isfinite().all(1)].sum() / (steps * len(q))
            worth = torch.where(ended, 1.0, gamma * worth)
            measured = measured + torch.stack((reward, task.measure(q, qd))).detach().nan_to_num().mean(1)
            kept.append([raw, obs, reward.nan_to_num(), torch.where(failed, 0.0, value), ended])
            fresh = task.start(len(q), self.generator)
            q, qd = (torch.where(ended[:, None], new, old) for new, old in zip(fresh, (q, qd), strict=True))
            self.age[ended] = 0
        self.q, self.qd = q.detach(), qd.detach()
        names = ("raw", "obs", "reward", "next_value", "ended")
        stacked = {name: torch.stack(rows).detach() for name, rows in zip(names, zip(*kept, strict=True), strict=True)}
        reward, metric = (measured / steps).tolist()
        return loss, stacked, {"reward": reward, task.metric: metric}

    def _improve_critic(self, kept: dict[str, Tensor]) -> None:
        """Fit the critic to TD(lambda) targets."""
        after, targets = kept["next_value"][-1], []
        for t in reversed(range(len(kept["reward"]))):
            reward, value, ended = (kept[name][t] for name in ("reward", "next_value", "ended"))
            after = reward + self.cfg["gamma"] * torch.where(ended, value, (1.0 - LAMBDA) * value + LAMBDA * after)
            targets.append(after)
        target, obs = torch.stack(targets[::-1]).flatten(), kept["obs"].flatten(0, 1)
        for _ in range(CRITIC_EPOCHS):
            for rows in torch.randperm(len(obs), generator=self.generator).chunk(MINIBATCHES):
                loss = (self.agent.critic(obs[rows])[:, 0] - target[rows]).square().mean()
                self.critic_optimizer.zero_grad()
                loss.backward()
                nn.utils.clip_grad_norm_(self.agent.critic.parameters(), MAX_NORM)
                self.critic_optimizer.step()
        with torch.no_grad():
            for slow, fast in zip(self.agent.target.parameters(), self.agent.critic.parameters(), strict=True):
                slow.lerp_(fast, TARGET)


@torch.no_grad()
def evaluate_in_newton(name: str, agent: Agent) -> dict[str, float]:
    """Return the means of whole episodes of fresh worlds."""
    task = TASKS[name]()
    world = World(task, EPISODES, 1, requires_grad=False)
    q, qd = task.start(EPISODES, torch.Generator().manual_seed(20_000))
    alive, total, metric, length = torch.ones(EPISODES), *torch.zeros(3, EPISODES)
    for _ in range(task.limit):
        before, action = q, agent.act(agent.normalize(task.observe(q, qd)))
        q, qd = world.step(0, q, qd, action)
        total += alive * task.reward(before, q, qd, action).nan_to_num()
        metric += alive * task.measure(q, qd).nan_to_num()
        length += alive
        alive *= (~task.failed(q) & q.isfinite().all(1)).float()
        if not alive.any():
            break
    found = {"return": total.mean(), task.metric: (metric / length).mean(), "length": length.mean()}
    return {key: round(float(value), 3) for key, value in found.items()}


def evaluate_in_mujoco(name: str, agent: Agent) -> dict[str, float]:
    """Return the means of whole episodes of this project's environment, which the policy has never seen."""
    from robot_rl_envs.make import make_env
    from robot_rl_tasks.registry import get_task

    from robot_rl.evaluation import evaluate_run
    from robot_rl.evaluation.rollout import EVALUATION_SEED, evaluation_task

    cfg, size = TASKS[name], len(agent.mean)
    found = evaluate_run(
        lambda: make_env(evaluation_task(get_task(name)), num_envs=EPISODES, seed=EVALUATION_SEED, num_threads=1),
        policy=lambda obs: agent.act(agent.normalize(obs["actor"][:, :size])),
        bundle=None,
        seconds=cfg.limit * cfg.step_dt,
    )["torch"]
    return {key: round(found[key]["mean"], 3) for key in ("return", cfg.metric, "failure_rate")}


def train(name: str, seed: int, iterations: int) -> dict[str, Any]:
    """Train with one seed and return its figures."""
    shac, curve, spent, cpu = Shac(name, seed), [], 0.0, 0.0
    steps = shac.cfg["worlds"] * shac.cfg["horizon"]
    for i in range(iterations):
        begun, cpu_begun = time.perf_counter(), time.process_time()
        row = shac.iterate(i / iterations)
        spent += time.perf_counter() - begun
        cpu += time.process_time() - cpu_begun
        if i % 5 == 4 or i == iterations - 1:
            curve.append({"steps": (i + 1) * steps, "cpu_s": round(cpu, 1), **{k: round(v, 4) for k, v in row.items()}})
            print(name, seed, curve[-1], flush=True)
    row = {"seed": seed, "steps": iterations * steps, "train_s": round(spent, 1), "cpu_s": round(cpu, 1)}
    row["newton"], row["mujoco"] = evaluate_in_newton(name, shac.agent), evaluate_in_mujoco(name, shac.agent)
    print(row, flush=True)
    return {**row, "curve": curve}


def main() -> None:
    """Train with each seed and write the file."""
    options = read_words(sys.argv[1:], KNOWN, whole=("iterations",))
    torch.set_num_threads(1)
    name, out, rows, label = options["task"], Path(options["out"]), [], options["task"]
    if horizon := int(options["horizon"]):  # As many steps an iteration in fewer worlds.
        cfg, label = SETTINGS[name], f"{name} horizon={horizon}"
        cfg |= {"worlds": cfg["worlds"] * cfg["horizon"] // horizon, "horizon": horizon}
    for seed in options["seeds"].split(","):
        rows.append(train(name, int(seed), int(options["iterations"])))
        found = json.loads(out.read_text()) if out.exists() else {"name": "SHAC through Newton", "tasks": {}}
        versions = package_versions() | {"newton": version("newton")}
        found |= {"machine": machine_facts(), "versions": versions, "threads": 1}
        found["tasks"][label] = {"settings": SETTINGS[name], "rows": rows}
        write_atomic(out, json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
