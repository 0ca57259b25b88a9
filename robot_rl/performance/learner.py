"""``robot-rl bench learner``: our PPO update compared with rsl_rl's, on the same data, in turn, in one run."""

from __future__ import annotations

import contextlib
import io
import itertools
import statistics
from collections.abc import Callable, Mapping, Sequence
from types import SimpleNamespace
from typing import Any

import torch
from rsl_rl.algorithms import PPO as RslRlPPO
from tensordict import TensorDict

from robot_rl.learn.algorithms.ppo.config import PPOLearnerCfg
from robot_rl.learn.algorithms.ppo.ppo import PPO, make_networks
from robot_rl.learn.algorithms.rsl_rl.runner import copy_to_rsl_rl, rsl_rl_cfg
from robot_rl.learn.dims import EnvSpec
from robot_rl.learn.rollout import Rollout, make_rollout
from robot_rl.performance.result import in_turn, make_result, seconds, spread
from robot_rl.settings import NetworkCfg

DIMS = EnvSpec(actor=48, critic=64, action=12)
"""Sizes of a quadruped's observations and actions."""
SIZES = ((512, 256, 128), (128, 128, 128))
"""Hidden layers: those that most tasks of rsl_rl's users have, and small ones that suit a CPU."""
WORLDS = (1024, 4096)
"""Worlds of the rollouts."""
REQUIRED: dict[tuple[int, ...], float] = {(512, 256, 128): 1.05, (128, 128, 128): 1.3}
"""Updates a second, ours over rsl_rl's, that we ask of ourselves on a CPU."""


class EqualPair:
    """Our algorithm and rsl_rl's with the same networks, hyperparameters and rollout.

    Attributes:
        ours: Our algorithm.
        rollout: The rollout as ours takes it.
        theirs: rsl_rl's algorithm, the same rollout in its storage.
    """

    def __init__(self, cfg: PPOLearnerCfg, num_envs: int, *, device: str = "cpu", seed: int = 0) -> None:
        self.cfg = cfg
        generator = torch.Generator().manual_seed(seed)
        torch.manual_seed(seed)
        actor, critic = make_networks(cfg, DIMS, None, generator)
        actor, critic = actor.to(device), critic.to(device)
        order = torch.Generator(device).manual_seed(seed)
        self.ours = PPO(actor, critic, cfg.ppo, generator=order)
        self._obs = [_observations(num_envs, generator, device) for _ in range(cfg.num_steps + 1)]
        settings = rsl_rl_cfg(cfg, None, device) | {"multi_gpu": None}
        env = SimpleNamespace(num_envs=num_envs, num_actions=DIMS.action)
        with contextlib.redirect_stdout(io.StringIO()):
            self.theirs = RslRlPPO.construct_algorithm(self._obs[0], env, settings, device)  # type: ignore[arg-type]
        copy_to_rsl_rl(actor, critic, self.theirs)
        self.rollout = make_rollout(cfg.num_steps, num_envs, DIMS, device)
        self._act(generator, device)

    def run_ours(self) -> dict[str, torch.Tensor]:
        """Run our update: values, advantages, epochs, normalizers."""
        return self.ours.update(self.rollout)

    def run_theirs(self) -> dict[str, float]:
        """Run rsl_rl's: advantages (it computed the values while acting), epochs, normalizers."""
        with torch.inference_mode():
            self.theirs.compute_returns(self._obs[-1])
        return self.theirs.update()

    @torch.inference_mode()
    def _act(self, generator: torch.Generator, device: str) -> None:
        """Fill rsl_rl's storage step by step, and copy it into our rollout."""
        num_envs = self.rollout.reward.shape[1]
        for obs in self._obs[:-1]:
            self.theirs.act(obs)
            reward = torch.randn(num_envs, generator=generator).to(device)
            done = (torch.rand(num_envs, generator=generator) < 0.01).to(device)
            self.theirs.process_env_step(obs, reward, done, {})
        _copy_storage(self.theirs.storage, self._obs, self.rollout)
        distribution = self.ours.actor.distribution
        self.rollout.record_policy(distribution, distribution.snapshot())


def networks(hidden: Sequence[int]) -> dict[str, Any]:
    """Return the settings of an actor and a critic of such layers."""
    network: dict[str, Any] = {"hidden": tuple(hidden), "activation": "elu"}
    return {"actor": NetworkCfg(**network), "critic": NetworkCfg(**network, output_gain=1.0)}


def bench_learner(
    *,
    sizes: Sequence[Sequence[int]] = SIZES,
    num_envs: Sequence[int] = WORLDS,
    num_steps: int = 24,
    repeats: int = 7,
    device: str = "cpu",
    say: Callable[[str], None] = lambda _: None,
) -> dict[str, Any]:
    """Time the update at equal arithmetic: the same networks, data, epochs and minibatches, all in float32.

    Args:
        sizes: Hidden layers to measure.
        num_envs: Worlds of the rollouts to measure.
        num_steps: Steps of the rollout.
        repeats: Timed updates of each; one more warms up.
        device: Device of both.
        say: Called with a line about each network and rollout as soon as it is measured.

    Returns:
        The result in the form of `robot_rl.performance.result.make_result`, with the ``ratio`` of the first size and
        rollout; and ``comparisons``, see `compare_updates`.
    """

    def make(hidden: Sequence[int], worlds: int) -> EqualPair:
        return EqualPair(PPOLearnerCfg(num_steps=num_steps, **networks(hidden)), worlds, device=device)

    cases = [(hidden, worlds, f"{worlds} x {num_steps}") for worlds, hidden in itertools.product(num_envs, sizes)]
    rows, comparisons = compare_updates("rsl_rl", make, cases, REQUIRED, repeats=repeats, device=device, say=say)
    notes = {
        "epochs_x_minibatches": "5 x 4",
        "observations": f"actor {DIMS.actor}, critic {DIMS.critic}, actions {DIMS.action}",
        "threads": torch.get_num_threads(),
        "device": device,
    }
    return make_result("learner update", rows, unit="updates/s", notes=notes) | {"comparisons": comparisons}


def compare_updates(
    rival: str,
    make: Callable[[Sequence[int], int], Any],
    cases: Sequence[tuple[Sequence[int], int, str]],
    required: Mapping[tuple[int, ...], float],
    *,
    repeats: int,
    device: str,
    say: Callable[[str], None],
) -> tuple[dict[str, list[float]], list[dict[str, Any]]]:
    """Time pairs of updates in turn.

    Args:
        rival: Name of the other one.
        make: Makes a pair with `run_ours` and `run_theirs` of hidden layers and a number of worlds.
        cases: Hidden layers, worlds and the text of the rollout.
        required: Updates a second, ours over theirs, by hidden layers; they count on a CPU.
        repeats: Timed updates of each; one more warms up.
        device: Device of both.
        say: Called with a line about each case.

    Returns:
        The rows of `make_result`, and for each case {"network", "rollout", "ours_s" and "rival_s" (median [s]), "ratio"
        (median of rival / ours, measured in turn), "spread" (its quartile distance), "required" (None without a goal)}.
    """
    rows: dict[str, list[float]] = {}
    comparisons = []
    for hidden, worlds, rollout in cases:
        pair, network = make(hidden, worlds), "-".join(map(str, hidden))
        runs = (pair.run_ours, pair.run_theirs)
        names = [f"{who} {network}, {rollout}" for who in ("robot-rl", rival)]
        times = in_turn(names, lambda runs=runs: (seconds(run, device) for run in runs), repeats)
        ours, theirs = times.values()
        ratios = [b / a for a, b in zip(ours, theirs, strict=True)]
        one = {"network": network, "rollout": rollout}
        one |= {"ours_s": statistics.median(ours), "rival_s": statistics.median(theirs)}
        one |= {"ratio": statistics.median(ratios), "spread": spread(ratios)}
        comparisons.append(one | {"required": required.get(tuple(hidden)) if device == "cpu" else None})
        rows |= {name: [1.0 / value for value in values] for name, values in times.items()}
        say(f"{network}, {rollout}: {one['ratio']:.3f} times {rival}'s, {repeats} updates of each in turn")
    return rows, comparisons


def _observations(num_envs: int, generator: torch.Generator, device: str) -> TensorDict:
    groups = {
        "actor": torch.randn(num_envs, DIMS.actor, generator=generator),
        "critic": torch.randn(num_envs, DIMS.critic, generator=generator),
    }
    return TensorDict(groups, batch_size=[num_envs]).to(device)


def _copy_storage(storage: Any, obs: Sequence[TensorDict], rollout: Rollout) -> None:
    """Copy rsl_rl's storage and the observation after its last step into a rollout of ours."""
    rollout.actor_obs.copy_(storage.observations["actor"])
    rollout.critic_obs[:-1].copy_(storage.observations["critic"])
    rollout.critic_obs[-1].copy_(obs[-1]["critic"])
    rollout.action.copy_(storage.actions)
    rollout.out.copy_(storage.distribution_params[0])
    rollout.reward.copy_(storage.rewards.squeeze(-1))
    rollout.done.copy_(storage.dones.squeeze(-1))
