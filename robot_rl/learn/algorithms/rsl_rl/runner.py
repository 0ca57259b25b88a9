"""The baseline: rsl_rl's own OnPolicyRunner on the same environment, networks and hyperparameters.

Its loop, storage and update are used unchanged; only its logger is replaced, by one that writes our metrics and
checkpoints (with our networks, so evaluation and export need not distinguish them).
"""

from __future__ import annotations

import contextlib
import io
import time
from collections.abc import Collection, Iterator, Mapping
from dataclasses import replace
from typing import Any

import torch
from rsl_rl.env import VecEnv
from rsl_rl.runners import OnPolicyRunner
from rsl_rl.utils.logger import Logger
from tensordict import TensorDict
from torch import Tensor, nn

from robot_rl.errors import UserError
from robot_rl.learn.algorithms.ppo.config import PPOLearnerCfg
from robot_rl.learn.algorithms.ppo.ppo import make_networks
from robot_rl.learn.base_trainer import BaseTrainer
from robot_rl.learn.networks.actor_critic import Actor, Critic
from robot_rl.learn.networks.distributions import Gaussian
from robot_rl.learn.networks.symmetry import Mirror, reflect


class RslRlRunner(BaseTrainer):
    """Trains by rsl_rl's runner; used like `Trainer`.

    For a symmetric network, which rsl_rl does not have, it uses rsl_rl's mirrored samples. Time-outs bootstrap from
    V(s_t), as in rsl_rl.

    Attributes:
        runner: rsl_rl's runner.
    """

    cfg: PPOLearnerCfg

    def __init__(self, env: VecEnv, cfg: PPOLearnerCfg, **options: Any) -> None:
        """Build rsl_rl's runner; the options are those of `BaseTrainer`."""
        effective = replace(cfg, symmetry="none" if cfg.symmetry == "none" else "augment")
        super().__init__(env, effective, **options)
        actor, critic = make_networks(effective, self.dims, self.mirrors, torch.Generator().manual_seed(self.seed))
        self._modules = {"actor": actor.to(self.device), "critic": critic.to(self.device)}
        torch.manual_seed(self.seed)
        self._timed = _TimedEnv(env, {*cfg.actor_groups, *cfg.critic_groups})
        settings = rsl_rl_cfg(self.cfg, self.mirrors, self.device)
        with contextlib.redirect_stdout(io.StringIO()):
            self.runner = OnPolicyRunner(self._timed, settings, log_dir=None, device=str(self.device))
        self.runner.logger = _Log(self)
        self._row: dict[str, float] = {}
        copy_to_rsl_rl(self.actor, self.critic, self.runner.alg)

    def modules(self) -> dict[str, nn.Module]:
        """Return actor and critic, copies of rsl_rl's."""
        return dict(self._modules)

    def _run(self, last_iteration: int) -> dict[str, float]:
        self._last_iteration = last_iteration
        if last_iteration > self.iteration:
            self.runner.current_learning_iteration = self.iteration
            stagger = self.cfg.stagger_episodes and self.iteration == 0
            self._set_linear_rate(last_iteration)
            with contextlib.suppress(_EnoughError):
                self.runner.learn(last_iteration - self.iteration, init_at_random_ep_len=stagger)
        return self._row

    def after_iteration(self, losses: Mapping[str, float], collect_s: float, learn_s: float) -> None:
        """Copy the results of an iteration of rsl_rl; called by its logger.

        `losses` are rsl_rl's mean losses by its own names, `collect_s` the time of the rollout [s] and `learn_s` that
        of the returns and the update [s].
        """
        copy_from_rsl_rl(self.runner.alg, self.actor, self.critic)
        metrics = {f"loss/{name}": float(value) for name, value in losses.items()}
        metrics["policy/learning_rate"] = float(self.runner.alg.learning_rate)
        metrics["policy/std"] = float(_gaussian(self.actor).spread())
        metrics |= self.pop_metrics()
        simulate_s = self._timed.pop_seconds()
        seconds = {"simulate": simulate_s, "infer": collect_s - simulate_s, "learn": learn_s}
        self._row = self._finish_iteration(metrics, seconds)
        self._set_linear_rate(self._last_iteration)
        if self._is_enough(self._row):
            raise _EnoughError

    def _set_linear_rate(self, last_iteration: int) -> None:
        """Set the step size of the next iteration for schedule=linear, which rsl_rl does not have."""
        ppo, algorithm = self.cfg.ppo, self.runner.alg
        if ppo.schedule == "linear":
            algorithm.learning_rate = ppo.learning_rate * (1.0 - min(1.0, self.iteration / max(last_iteration, 1)))
            for group in algorithm.optimizer.param_groups:
                group["lr"] = algorithm.learning_rate

    def track(self, reward: Tensor, done: Tensor, log: Mapping[str, Any]) -> None:
        """Count a step of an environment without its own statistics; called by rsl_rl's logger."""
        if self._tracker is not None:
            self._tracker.add(reward, done > 0, log)

    def state(self) -> dict[str, Tensor]:
        """Return the optimizer's moments, the step size and torch's random state."""
        state = {"random.global": torch.get_rng_state()}
        state["learning_rate"] = torch.tensor(self.runner.alg.learning_rate, dtype=torch.float64)
        for index, moments in self.runner.alg.optimizer.state_dict()["state"].items():
            state |= {f"optimizer.{index}.{name}": torch.as_tensor(value) for name, value in moments.items()}
        return state

    def load_state(self, state: Mapping[str, Tensor]) -> None:
        """Load the output of `state`, and copy the networks to rsl_rl."""
        copy_to_rsl_rl(self.actor, self.critic, self.runner.alg)
        if not state:
            return
        torch.set_rng_state(state["random.global"])
        moments: dict[int, dict[str, Tensor]] = {}
        for name, tensor in state.items():
            if name.startswith("optimizer."):
                _, index, key = name.split(".")
                moments.setdefault(int(index), {})[key] = tensor
        algorithm = self.runner.alg
        algorithm.learning_rate = float(state["learning_rate"])
        groups = [group | {"lr": algorithm.learning_rate} for group in algorithm.optimizer.state_dict()["param_groups"]]
        algorithm.optimizer.load_state_dict({"state": moments, "param_groups": groups})


def rsl_rl_cfg(cfg: PPOLearnerCfg, mirrors: Mapping[str, Mirror] | None, device: torch.device | str) -> dict[str, Any]:
    """Return rsl_rl's configuration of the same training; raise UserError for a setting without counterpart."""
    ppo = cfg.ppo
    for name, is_on in _unsupported(cfg).items():
        if is_on:
            raise UserError(f"{name}: the rsl_rl learner does not have it here; use learner=ppo")
    if ppo.schedule == "adaptive" and (ppo.min_learning_rate, ppo.max_learning_rate) != (1e-5, 1e-2):
        raise UserError("ppo.min_learning_rate, ppo.max_learning_rate: rsl_rl has 1e-05 and 0.01 built in")
    algorithm = {
        "class_name": "PPO",
        "num_learning_epochs": ppo.epochs,
        "num_mini_batches": ppo.minibatches,
        "clip_param": ppo.clip,
        "gamma": ppo.gamma,
        "lam": ppo.lam,
        "value_loss_coef": ppo.value_coef,
        "entropy_coef": ppo.entropy_coef,
        "learning_rate": ppo.learning_rate,
        "max_grad_norm": ppo.max_grad_norm,
        "use_clipped_value_loss": ppo.clip_value_loss,
        "schedule": "adaptive" if ppo.schedule == "adaptive" else "fixed",
        "desired_kl": ppo.desired_kl,
    }
    if mirrors is not None:
        algorithm["symmetry_cfg"] = {
            "use_data_augmentation": True,
            "data_augmentation_func": _Mirroring(cfg, mirrors, device),
        }
    network = {"class_name": "MLPModel", "obs_normalization": cfg.normalize_obs}
    return {
        "num_steps_per_env": cfg.num_steps,
        "save_interval": cfg.save_interval,
        "obs_groups": {"actor": list(cfg.actor_groups), "critic": list(cfg.critic_groups)},
        "algorithm": algorithm,
        "actor": network
        | {"hidden_dims": list(cfg.actor.hidden), "activation": cfg.actor.activation}
        | {
            "distribution_cfg": {
                "class_name": "GaussianDistribution",
                "init_std": cfg.actor.init_std,
                "std_range": (cfg.actor.min_std, cfg.actor.max_std),
                "std_type": "log",
            }
        },
        "critic": network | {"hidden_dims": list(cfg.critic.hidden), "activation": cfg.critic.activation},
    }


def _unsupported(cfg: PPOLearnerCfg) -> dict[str, bool]:
    """Return the settings without a counterpart in rsl_rl, and whether it is used."""
    parts = {"actor": cfg.actor, "critic": cfg.critic}
    return {
        **{f"{name}.conv.groups": bool(part.conv.groups) for name, part in parts.items()},
        **{f"{name}.memory.kind": part.memory.kind != "none" for name, part in parts.items()},
        "normalize_values": cfg.normalize_values,
        "several_critics": cfg.several_critics,
        "rnd.weight": cfg.rnd.weight > 0,
        "amp.weight": cfg.amp.weight > 0,
        "reference.run": bool(cfg.reference.run),
        "auxiliaries": bool(cfg.auxiliaries),
    }


@torch.no_grad()
def copy_to_rsl_rl(actor: Actor, critic: Critic, algorithm: Any) -> None:
    """Copy weights, deviation and normalizers of our networks into those of an rsl_rl algorithm."""
    for ours, theirs in _shared_tensors(actor, critic, algorithm):
        theirs.copy_(ours.view_as(theirs))
    for network in (algorithm.actor, algorithm.critic):
        if hasattr(network.obs_normalizer, "_var"):
            network.obs_normalizer._std = network.obs_normalizer._var.sqrt()


@torch.no_grad()
def copy_from_rsl_rl(algorithm: Any, actor: Actor, critic: Critic) -> None:
    """Copy weights, deviation and normalizers of an rsl_rl algorithm's networks into ours."""
    for ours, theirs in _shared_tensors(actor, critic, algorithm):
        ours.copy_(theirs.view_as(ours))
    for network in (actor, critic):
        if network.normalizer is not None:
            network.normalizer.refresh()


def _shared_tensors(actor: Actor, critic: Critic, algorithm: Any) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield each tensor of our networks with its counterpart in an rsl_rl algorithm."""
    yield _gaussian(actor).log_std, algorithm.actor.distribution.log_std_param
    for ours, theirs in ((actor, algorithm.actor), (critic, algorithm.critic)):
        yield from zip(ours.body.parameters(), theirs.mlp.parameters(), strict=True)
        if (mine := ours.normalizer) is not None:
            other = theirs.obs_normalizer
            yield from ((mine.mean, other._mean), (mine.var, other._var), (mine.count, other.count))


def _gaussian(actor: Actor) -> Gaussian:
    """Return the actor's distribution, the only kind that rsl_rl also has."""
    if not isinstance(actor.distribution, Gaussian):
        raise UserError(
            "actor.distribution, actor.state_std: the rsl_rl learner has only a Gaussian with one deviation"
        )
    return actor.distribution


class _EnoughError(Exception):
    """Ends rsl_rl's loop from inside its logger."""


class _Log(Logger):
    """rsl_rl's logger, which passes everything to the session; it writes no files itself and prints nothing."""

    def __init__(self, session: RslRlRunner) -> None:
        self.session = session
        self.writer = None

    def init_logging_writer(self) -> None:
        """Open nothing: the session has its own writers."""

    def process_env_step(
        self, rewards: Tensor, dones: Tensor, extras: dict, intrinsic_rewards: Tensor | None = None
    ) -> None:
        """Hand a step to the session."""
        self.session.track(rewards, dones, extras.get("log", {}))

    def log(self, *, collect_time: float, learn_time: float, loss_dict: dict, **_: Any) -> None:  # type: ignore[override]
        """Hand an iteration to the session."""
        self.session.after_iteration(loss_dict, collect_time, learn_time)


class _TimedEnv(VecEnv):
    """An environment that measures the time of its steps, and passes on the observation groups that are learned from.

    rsl_rl stores every group it is given, unused images included.
    """

    def __init__(self, env: VecEnv, groups: Collection[str]) -> None:
        self.env, self._groups = env, tuple(groups)
        self.seconds = 0.0

    def __getattr__(self, name: str) -> Any:
        return getattr(self.env, name)

    @property
    def episode_length_buf(self) -> Tensor:  # type: ignore[override]
        """The environment's own buffer."""
        return self.env.episode_length_buf

    @episode_length_buf.setter
    def episode_length_buf(self, value: Tensor) -> None:  # type: ignore[override]
        self.env.episode_length_buf = value

    def get_observations(self) -> TensorDict:
        """Return the environment's observations."""
        return self.env.get_observations().select(*self._groups, strict=False)

    def step(self, actions: Tensor) -> tuple[TensorDict, Tensor, Tensor, dict]:
        """Step the environment and add to its time."""
        begin = time.perf_counter()
        obs, rewards, dones, extras = self.env.step(actions)
        self.seconds += time.perf_counter() - begin
        return obs.select(*self._groups, strict=False), rewards, dones, extras

    def pop_seconds(self) -> float:
        """Return the seconds spent in steps since the last call."""
        seconds, self.seconds = self.seconds, 0.0
        return seconds


class _Mirroring:
    """rsl_rl's data augmentation: every sample and its mirror image."""

    def __init__(self, cfg: PPOLearnerCfg, mirrors: Mapping[str, Mirror], device: torch.device | str) -> None:
        moved = {name: (perm.to(device), sign.to(device)) for name, (perm, sign) in mirrors.items()}
        groups = {"actor": cfg.actor_groups, "critic": cfg.critic_groups}
        for name, members in groups.items():
            if len(members) != 1:
                raise UserError(f"{name}_groups: {list(members)}, rsl_rl's mirrored samples need a single group")
        self.groups = {members[0]: moved[name] for name, members in groups.items()}
        self.action = moved["action"]

    def __call__(
        self, env: VecEnv, obs: TensorDict | None, actions: Tensor | None
    ) -> tuple[TensorDict | None, Tensor | None]:
        both = None
        if obs is not None:
            parts = {name: torch.cat((obs[name], reflect(obs[name], mirror))) for name, mirror in self.groups.items()}
            both = TensorDict(parts, batch_size=[2 * obs.batch_size[0]])
        return both, None if actions is None else torch.cat((actions, reflect(actions, self.action)))


def make_session(env: VecEnv, cfg: PPOLearnerCfg, **options: Any) -> RslRlRunner:
    """Build rsl_rl's runner, which has its own loop; the options are those of `BaseTrainer`."""
    return RslRlRunner(env, cfg, **options)
