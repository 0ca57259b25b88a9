"""Our MAPPO update compared with skrl's, on the same data, in turn.

    python benchmarks/team_update.py agents=4 out=benchmarks/bench_learner_team.json

Both have a policy for each robot, of the same layers, and critics that see the whole team: skrl a critic for each
robot, ours one with a value for each, which sees a world once where skrl's see it once for each robot. ``--help``
lists the options.
"""

from __future__ import annotations

import statistics
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import torch
from harness import make_result, numbers, run_bench, say
from torch import Tensor, nn
from words import run_script

from robot_rl.cli.bench import show_learner
from robot_rl.cli.options import MAX_COUNT, option, parse_value
from robot_rl.errors import UserError
from robot_rl.learn.algorithms.mappo.config import MAPPOLearnerCfg
from robot_rl.learn.algorithms.ppo.ppo import PPO, make_networks
from robot_rl.learn.dims import EnvSpec
from robot_rl.learn.rollout import make_rollout
from robot_rl.performance.learner import compare_updates, networks
from robot_rl.runs.settings import resolve_device
from robot_rl.settings import NetworkCfg, from_dict

SEEN, OWN, ACTIONS = 48, 64, 12
"""A quadruped's observations, what the critic sees of it, and its actions."""
REQUIRED = 2.0
"""Updates a second, ours over skrl's, that we ask of ourselves on a CPU."""


@dataclass(kw_only=True, slots=True)
class Options:
    """Options of the script."""

    agents: int = option(4, "robots of a world", least=2, most=16)
    hidden: str = option("[128,128,128]", "hidden layers")
    num_envs: str = option("[256,1024]", "worlds of the rollouts; there are as many rows a robot")
    num_steps: int = option(24, "steps of the rollout", least=1, most=100_000)
    device: str = option("cpu", "cpu, cuda or cuda:<index>")
    repeats: int = option(7, "timed updates of each, at least 2 for a spread", least=2, most=MAX_COUNT)
    out: str = option("", "file for the figures as JSON")


def team_dims(agents: int) -> EnvSpec:
    """Return the sizes of a team of quadrupeds."""
    names = tuple(f"robot{k}" for k in range(agents))
    return EnvSpec(
        actor=SEEN,
        critic=OWN,
        action=ACTIONS,
        agents=names,
        roles=("robot",) * agents,
        role_sizes={"robot": (SEEN, ACTIONS)},
    )


class EqualTeams:
    """Our algorithm and skrl's with networks of the same sizes, hyperparameters and data."""

    def __init__(self, cfg: MAPPOLearnerCfg, agents: int, worlds: int, *, device: str = "cpu", seed: int = 0) -> None:
        self.cfg, self.agents, self.worlds = cfg, agents, worlds
        generator = torch.Generator().manual_seed(seed)
        torch.manual_seed(seed)
        dims = team_dims(agents)
        actor, critic = make_networks(cfg, dims, None, generator)
        rows = agents * worlds
        order = torch.Generator(device).manual_seed(seed)
        self.ours = PPO(actor.to(device), critic.to(device), cfg.ppo, generator=order)
        rollout = self.rollout = make_rollout(cfg.num_steps, rows, dims, device)
        for tensor in (rollout.actor_obs, rollout.critic_obs, rollout.reward, rollout.noise):
            tensor.copy_(torch.randn(tensor.shape, generator=generator))
        rollout.done.copy_(torch.rand(rollout.done.shape, generator=generator) < 0.01)
        distribution, frozen = self.ours.actor.distribution, self.ours.actor.distribution.snapshot()
        with torch.no_grad():
            for t in range(cfg.num_steps):
                action, out = self.ours.actor.act(rollout.actor_obs[t], rollout.noise[t], frozen)
                rollout.action[t].copy_(action)
                rollout.out[t].copy_(out)
        rollout.record_policy(distribution, frozen)
        self._scratch = tempfile.TemporaryDirectory(prefix="bench-skrl-")
        self.theirs = make_skrl(cfg, dims, worlds, device, self._scratch.name)
        self._fill()

    def _fill(self) -> None:
        """Put the rollout into skrl's memories, as it does itself while it acts."""
        rollout, agent = self.rollout, self.theirs

        def own(x: Tensor, k: int) -> Tensor:
            return x.view(x.shape[0], self.worlds, self.agents, *x.shape[2:])[:, :, k]

        # The state of the whole team, one for all robots, as skrl's environments give it.
        states = rollout.critic_obs.view(self.cfg.num_steps + 1, self.worlds, -1)
        with torch.no_grad():
            for k, name in enumerate(agent.possible_agents):
                dones = own(rollout.done, k)
                for t in range(self.cfg.num_steps):
                    values, _ = agent.values[name].act({"states": states[t], "observations": states[t]}, role="value")
                    agent.memories[name].add_samples(
                        observations=own(rollout.actor_obs, k)[t],
                        states=states[t],
                        actions=own(rollout.action, k)[t],
                        rewards=own(rollout.reward, k)[t][:, None],
                        terminated=dones[t][:, None],
                        truncated=torch.zeros_like(dones[t])[:, None],
                        log_prob=own(rollout.log_prob, k)[t][:, None],
                        values=values,
                    )
                agent._current_next_observations[name] = own(rollout.actor_obs, k)[-1]
                agent._current_next_states[name] = states[-1]

    def run_ours(self) -> dict[str, Tensor]:
        """Run our update: values, advantages, epochs, normalizers."""
        return self.ours.update(self.rollout)

    def run_theirs(self) -> None:
        """Run skrl's: advantages (it computed the values while acting), epochs and normalizers, robot by robot."""
        self.theirs.enable_models_training_mode(True)
        for name in self.theirs.possible_agents:
            self.theirs.update(timestep=1, timesteps=2, uid=name)
        self.theirs.enable_models_training_mode(False)


def make_skrl(cfg: MAPPOLearnerCfg, dims: EnvSpec, worlds: int, device: str, folder: str) -> Any:
    """Return skrl's MAPPO with our hyperparameters.

    Raises UserError if skrl is not installed.
    """
    try:
        from gymnasium.spaces import Box
        from skrl.memories.torch import RandomMemory
        from skrl.multi_agents.torch.mappo import MAPPO as SkrlMAPPO
        from skrl.resources.preprocessors.torch import RunningStandardScaler
    except ImportError as error:
        raise UserError(f"skrl: {error}; pip install 'robot-rl[runners]'") from None

    policy, value = skrl_models(cfg, dims, device)

    def box(size: int) -> Any:
        return Box(-float("inf"), float("inf"), (size,))

    seen, state, action = box(dims.actor), box(len(dims.agents) * dims.critic), box(dims.action)
    spaces = {"observation_space": seen, "state_space": state, "action_space": action}
    names = list(dims.agents)
    scalers = {"observation": seen, "state": state, "value": 1}
    settings = skrl_settings(cfg, folder)
    settings["learning_rate_scheduler_kwargs"] = {name: {} for name in names}
    for what, size in scalers.items():
        settings[f"{what}_preprocessor"] = RunningStandardScaler
        settings[f"{what}_preprocessor_kwargs"] = {name: {"size": size, "device": device} for name in names}
    known: Any = SkrlMAPPO
    agent = known(
        possible_agents=names,
        models={name: {"policy": policy(**spaces), "value": value(**spaces)} for name in names},
        memories={name: RandomMemory(memory_size=cfg.num_steps, num_envs=worlds, device=device) for name in names},
        observation_spaces=dict.fromkeys(names, seen),
        state_spaces=dict.fromkeys(names, state),
        action_spaces=dict.fromkeys(names, action),
        device=device,
        cfg=settings,
    )
    agent.init()
    return agent


def skrl_models(cfg: MAPPOLearnerCfg, dims: EnvSpec, device: str) -> tuple[Any, Any]:
    """Return the classes of skrl's policy and of its value function, which sees the team."""
    from skrl.models.torch import DeterministicMixin, GaussianMixin, Model

    width = len(dims.agents) * dims.critic

    def layers(inputs: int, outputs: int, hidden: Sequence[int]) -> nn.Sequential:
        sizes, parts = [inputs, *hidden], []
        for a, b in pairwise(sizes):
            parts += [nn.Linear(a, b), nn.ELU()]
        return nn.Sequential(*parts, nn.Linear(sizes[-1], outputs))

    class Policy(GaussianMixin, Model):
        def __init__(self, **spaces: Any) -> None:
            Model.__init__(self, **spaces, device=device)
            GaussianMixin.__init__(self, clip_actions=False, clip_log_std=True, reduction="sum")
            self.net = layers(dims.actor, dims.action, cfg.actor.hidden)
            self.log_std = nn.Parameter(torch.zeros(dims.action))

        def compute(self, inputs: Any, role: str = "") -> Any:
            return self.net(inputs["observations"]), {"log_std": self.log_std}

    class Value(DeterministicMixin, Model):
        def __init__(self, **spaces: Any) -> None:
            Model.__init__(self, **spaces, device=device)
            DeterministicMixin.__init__(self, clip_actions=False)
            self.net = layers(width, 1, cfg.critic.hidden)

        def compute(self, inputs: Any, role: str = "") -> Any:
            return self.net(inputs["states"]), {}

    return Policy, Value


def skrl_settings(cfg: MAPPOLearnerCfg, folder: str) -> dict[str, Any]:
    """Return skrl's names for our hyperparameters."""
    ppo = cfg.ppo
    return {
        "rollouts": cfg.num_steps,
        "learning_epochs": ppo.epochs,
        "mini_batches": ppo.minibatches,
        "discount_factor": ppo.gamma,
        "gae_lambda": ppo.lam,
        "learning_rate": ppo.learning_rate,
        "grad_norm_clip": ppo.max_grad_norm,
        "ratio_clip": ppo.clip,
        "value_clip": ppo.clip,
        "entropy_loss_scale": ppo.entropy_coef,
        "value_loss_scale": ppo.value_coef,
        "experiment": {"directory": folder, "write_interval": 0, "checkpoint_interval": 0},
    }


def bench_team(options: Options, _: dict[str, Any]) -> dict[str, Any]:
    """Time the update of a team; the result is that of `robot_rl.performance.learner.bench_learner`."""
    agents, steps, device = options.agents, options.num_steps, resolve_device(options.device)
    hidden = from_dict(NetworkCfg, {"hidden": parse_value(options.hidden, "hidden")}).hidden

    def make(hidden: Sequence[int], worlds: int) -> EqualTeams:
        cfg = MAPPOLearnerCfg(num_steps=steps, sharing="separate", **networks(hidden))
        cfg.ppo.schedule = "fixed"
        return EqualTeams(cfg, agents, worlds, device=device)

    cases = [(hidden, n, f"{n} x {steps} x {agents}") for n in numbers("num_envs", options.num_envs)]
    given: dict[str, Any] = {"repeats": options.repeats, "device": device, "say": say}
    rows, comparisons = compare_updates("skrl", make, cases, {tuple(hidden): REQUIRED}, **given)
    notes = {
        "epochs_x_minibatches": "5 x 4",
        "observations": f"actor {SEEN}, critic {agents} x {OWN}, actions {ACTIONS}",
        "networks": f"{agents} policies each; critics: ours 1 with {agents} values, skrl's {agents}",
        "threads": torch.get_num_threads(),
        "device": device,
        "median_ratio": round(statistics.median(one["ratio"] for one in comparisons), 3),
    }
    return make_result("team update", rows, unit="updates/s", notes=notes) | {"comparisons": comparisons}


def main(arguments: list[str]) -> None:
    """Measure, print the table, write the figures."""
    run_bench(arguments, Options, bench_team, show_learner)


if __name__ == "__main__":
    run_script(main)
