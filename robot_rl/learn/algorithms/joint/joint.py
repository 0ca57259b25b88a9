"""A team as one robot: its observations and actions side by side."""

from __future__ import annotations

from typing import Any

from rsl_rl.env import VecEnv
from tensordict import TensorDict
from torch import Tensor

from robot_rl.errors import UserError
from robot_rl.learn.algorithms.joint.config import JointLearnerCfg
from robot_rl.learn.runner import Runner

OF_THE_TEAM = "team"
"""The group that shows a robot's critic the others: all are side by side here."""


class JointEnv(VecEnv):
    """The worlds of a team, each as one robot; what is not here is the team's own.

    Attributes:
        env: the team's environment, with T rows a world.
        size, team_size: T.
    """

    def __init__(self, env: Any) -> None:
        """Wrap an environment.

        Raises UserError for robots of several roles, or an environment without a team.
        """
        agents, roles = tuple(getattr(env, "agents", ())), tuple(getattr(env, "roles", ()))
        if not agents:
            raise UserError("learner=joint: is for a team, the environment has 1 robot; use learner=ppo")
        if len(set(roles)) > 1:
            raise UserError(f"learner=joint: is for robots of 1 role, these have {len(set(roles))}; use learner=mappo")
        self.env, self.size, self.team_size = env, len(agents), len(agents)
        self.num_envs, self.num_actions = env.num_envs // self.size, env.num_actions * self.size
        self.device, self.max_episode_length, self.step_dt = env.device, env.max_episode_length, env.step_dt
        self.cfg: Any = env.cfg

    @property
    def episode_length_buf(self) -> Tensor:
        """(N,) control steps towards the time limit."""
        return self.env.episode_length_buf.view(self.num_envs, -1)[:, 0]

    def get_observations(self) -> TensorDict:
        """Return the groups of all robots side by side, (N, T D) each."""
        return self._joined(self.env.get_observations())

    def _joined(self, obs: TensorDict) -> TensorDict:
        names = [name for name in map(str, obs.keys()) if name != OF_THE_TEAM]
        return TensorDict(
            {name: obs[name].view(self.num_envs, -1) for name in names}, batch_size=[self.num_envs], device=self.device
        )

    def reset(self) -> TensorDict:
        """Reset every world; return the first observations."""
        return self._joined(self.env.reset())

    def step(self, actions: Tensor) -> tuple[TensorDict, Tensor, Tensor, dict[str, Any]]:
        """Apply the actions (N, T A) of all robots for one control period; see the team's own `step`."""
        obs, reward, _, extras = self.env.step(actions.view(self.num_envs * self.size, -1))
        rows = {name: extras[name].view(self.num_envs, self.size) for name in ("acted", "valid", "time_outs", "ended")}
        acted = rows["acted"]
        mean = (reward.view(self.num_envs, -1) * acted).sum(1) / acted.sum(1).clamp(min=1)
        joined = {
            "time_outs": rows["time_outs"].any(1),
            "final_obs": self._joined(extras["final_obs"]),
            "valid": (rows["valid"] | ~acted).all(1),
            "log": {},
        }
        return self._joined(obs), mean, rows["ended"].any(1), joined

    def __getattr__(self, name: str) -> Any:
        """Return what the team's environment has: metrics, state to save, notices."""
        if name in ("env", "pop_metrics", "pop_notices", "state_dict", "load_state_dict", "quarantine_dir", "close"):
            return getattr(self.__dict__["env"], name)
        raise AttributeError(name)


def make_joint(cfg: JointLearnerCfg, env: Any, **options: Any) -> Runner:
    """Build the training of one policy for all robots; errors are those of `JointEnv`."""
    return Runner(JointEnv(env), cfg, **options)
