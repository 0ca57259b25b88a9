"""A task's environment as a Gymnasium environment: numpy arrays on the host with every engine."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import gymnasium
import numpy as np
import torch
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space

from robot_rl_envs.adapters.shared import action_box, group_box, make_env_of_one

if TYPE_CHECKING:
    from tensordict import TensorDict

    from robot_rl_envs.env import Env
    from robot_rl_envs.render import Renderer
    from robot_rl_envs.task import Task

Arrays = dict[str, np.ndarray]
WIDTH, HEIGHT = 480, 360
"""Size of a rendered image [px]."""


class TaskVectorEnv(VectorEnv):
    """Worlds of a task as a Gymnasium vector environment.

    An episode that ended by its time is truncated, one that ended otherwise is terminated; a world that was quarantined
    is terminated with a reward of zero, and an observation of zeros.

    Attributes:
        task_env: the environment underneath.
    """

    metadata: dict[str, Any] = {"render_modes": ["rgb_array"], "autoreset_mode": AutoresetMode.SAME_STEP}  # noqa: RUF012

    def __init__(
        self,
        task: Task,
        num_envs: int = 1,
        *,
        groups: str | Sequence[str] = "actor",
        autoreset_mode: AutoresetMode | str = AutoresetMode.SAME_STEP,
        render_mode: str | None = None,
        seed: int | None = None,
        **options: Any,
    ) -> None:
        """Build the worlds.

        Args:
            task: the task to simulate.
            num_envs: number of worlds N.
            groups: the observation group that is the observation, a Box; or several in a Dict, "all" for all of them.
            autoreset_mode: how worlds that are done are reset. SAME_STEP is the environment's own way; NEXT_STEP costs
                a copy of the state in every step after one in which an episode ended.
            render_mode: "rgb_array", or None.
            seed: of the first episodes, until `reset` is given another.
            options: engine, device, num_threads, as of `robot_rl_envs.make.make_env`.
        """
        if render_mode not in (None, "rgb_array"):
            raise ValueError(f"render_mode={render_mode!r}: must be 'rgb_array', or None")
        self._task, self._options, self._seed, self.render_mode = task, options, seed, render_mode
        self._mode = AutoresetMode(autoreset_mode)
        self.num_envs = num_envs
        self.task_env: Env = self._build(0 if seed is None else seed)
        obs = self.task_env.get_observations()
        self._single = isinstance(groups, str) and groups != "all"
        known = [str(name) for name in obs.keys()]  # noqa: SIM118, a TensorDict
        self._names = known if groups == "all" else [groups] if isinstance(groups, str) else list(groups)
        unknown = [name for name in self._names if name not in known]
        if unknown:
            raise ValueError(f"groups={unknown[0]!r}: must be one of {', '.join(known)}, or 'all'")
        if not self._names or len(set(self._names)) < len(self._names):
            raise ValueError(f"groups={groups!r}: must name at least one group, none of them twice")
        parts: dict[str, spaces.Space] = {name: group_box(obs, name) for name in self._names}
        self.single_observation_space = parts[self._names[0]] if self._single else spaces.Dict(parts)
        self.single_action_space = action_box(self.task_env)
        self.observation_space = batch_space(self.single_observation_space, num_envs)
        self.action_space = batch_space(self.single_action_space, num_envs)
        fps = 1.0 / self.task_env.step_dt
        fps = round(fps) if abs(fps - round(fps)) < 1e-6 else fps
        self.metadata = {**type(self).metadata, "autoreset_mode": self._mode, "render_fps": fps}
        self._renderers: list[Renderer] = []

    def _build(self, seed: int) -> Env:
        self._as_built, self._shown = True, False
        self._waiting = np.zeros(self.num_envs, dtype=bool)
        return make_env_of_one(self._task, num_envs=self.num_envs, seed=seed, **self._options)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Reset all worlds, or with options={"reset_mask": (N,) bool} some; return observations and an empty info.

        Args:
            seed: of all random numbers from here on, the randomized models' among them; None continues with the present
                ones, which are random if no seed was ever given.
            options: as above, or None.
        """
        super().reset(seed=seed)
        mask = self._reset_mask(options)
        if mask is not None:
            if seed is not None:
                raise ValueError(f"seed={seed}: seeds all worlds, so it cannot go with a reset_mask")
            self._as_built = False
            fresh = self._arrays(self.task_env.restart(self._tensor(mask)))
            self._last = {name: _rows(mask, fresh[name], last) for name, last in self._last.items()}
            self._waiting &= ~mask
            return self._observation(), {}
        if seed is None and self._seed is None:
            seed = int(self.np_random.integers(2**30))
        if seed is not None and not (self._as_built and self.task_env.seed == seed):
            self.task_env.close()
            self.task_env = self._build(int(seed))
        elif seed is None and self._shown:
            self.task_env.reset()
            self._as_built = False
        self._seed = self.task_env.seed
        self._shown = True
        self._waiting[:] = False
        self._last = self._arrays(self.task_env.get_observations())
        return self._observation(), {}

    def step(self, actions: Any) -> tuple[Any, np.ndarray, np.ndarray, np.ndarray, dict[str, Any]]:
        """Apply actions (N, A) for one control period.

        Returns:
            Observations, rewards (N,) float64, terminations (N,) bool, truncations (N,) bool, and an info: if an
            episode ended "final_obs" with the observation that it ended in (SAME_STEP), and "quarantined", inside of
            "final_info" with SAME_STEP; each with its mask as Gymnasium defines.

        Raises:
            gymnasium.error.ResetNeeded: before the first reset, or with DISABLED while a world needs one.
        """
        if not self._shown or (self._mode is AutoresetMode.DISABLED and self._waiting.any()):
            raise gymnasium.error.ResetNeeded(f"{self}: call reset, with DISABLED for every world that is done")
        self._as_built = False
        given = torch.from_numpy(np.array(actions, dtype=np.float32)).to(self.task_env.device)
        obs, reward, done, extras = self.task_env.step(given)
        last = self._arrays(extras["final_obs"])
        over, cut, valid = (flags.cpu().numpy().copy() for flags in (done, extras["time_outs"], extras["valid"]))
        rewards = reward.cpu().numpy().astype(np.float64)
        if self._mode is AutoresetMode.NEXT_STEP and self._waiting.any():
            obs = self.task_env.restart(self._tensor(self._waiting))
            rewards[self._waiting] = 0.0
            over, cut = over & ~self._waiting, cut & ~self._waiting
        self._last = self._arrays(obs)
        self._waiting = over
        info: dict[str, Any] = {}
        if over.any():
            info = {"quarantined": over & ~valid, "_quarantined": over.copy()}
            if self._mode is AutoresetMode.SAME_STEP:
                info = {"final_info": info, "_final_info": over.copy()}
                info |= {"final_obs": self._each(last, over), "_final_obs": over.copy()}
            else:
                self._last = {name: _rows(over, last[name], now) for name, now in self._last.items()}
        return self._observation(), rewards, over & ~cut, cut, info

    def render(self) -> tuple[np.ndarray, ...] | None:
        """Draw every world, (HEIGHT, WIDTH, 3) uint8 each.

        Raises:
            robot_rl_envs.render.NoGLError: OpenGL is missing; the message names the package to install.
        """
        if self.render_mode is None:
            return None
        from robot_rl_envs.render import Renderer

        scene = self.task_env.scene
        while len(self._renderers) < self.num_envs:
            self._renderers.append(Renderer(scene.render_model, WIDTH, HEIGHT))
        qpos = self.task_env.state.qpos.cpu().numpy().astype(np.float64)
        return tuple(renderer.frame(row) for renderer, row in zip(self._renderers, qpos, strict=True))

    def close_extras(self, **_: Any) -> None:
        """Close the worlds and the renderers."""
        for renderer in self._renderers:
            renderer.close()
        self._renderers.clear()
        self.task_env.close()

    def _reset_mask(self, options: dict[str, Any] | None) -> np.ndarray | None:
        mask = (options or {}).get("reset_mask")
        if mask is None:
            return None
        if not isinstance(mask, np.ndarray) or mask.dtype != bool or mask.shape != (self.num_envs,):
            raise ValueError(f"options['reset_mask'] must be an array of {self.num_envs} flags (bool)")
        if not mask.any():
            raise ValueError("options['reset_mask'] names no world")
        # A mask at the very first call is a reset of all.
        return mask if self._shown else None

    def _tensor(self, mask: np.ndarray) -> torch.Tensor:
        return torch.from_numpy(mask.copy()).to(self.task_env.device)

    def _arrays(self, obs: TensorDict) -> Arrays:
        """Copy the groups of the observation to the host."""
        return {name: np.array(obs[name].cpu().numpy()) for name in self._names}

    def _observation(self) -> Any:
        copied = {name: array.copy() for name, array in self._last.items()}
        return copied[self._names[0]] if self._single else copied

    def _each(self, arrays: Arrays, mask: np.ndarray) -> np.ndarray:
        """Return one observation a world in an array of objects, None if the mask is False."""
        listed = np.full(self.num_envs, None, dtype=object)
        for k in np.flatnonzero(mask):
            own = {name: array[k].copy() for name, array in arrays.items()}
            listed[k] = own[self._names[0]] if self._single else own
        return listed


class TaskEnv(gymnasium.Env):
    """One world of a task as a Gymnasium environment; a vector of worlds is far quicker.

    Attributes:
        worlds: the vector environment of one world underneath.
    """

    metadata: dict[str, Any] = {"render_modes": ["rgb_array"]}  # noqa: RUF012

    def __init__(self, task: Task, *, render_mode: str | None = None, **options: Any) -> None:
        """Build the world; ``options`` are groups, seed, engine, device, num_threads, as of `TaskVectorEnv`."""
        self.worlds = TaskVectorEnv(task, autoreset_mode=AutoresetMode.DISABLED, render_mode=render_mode, **options)
        self.render_mode = render_mode
        self.observation_space, self.action_space = (
            self.worlds.single_observation_space,
            self.worlds.single_action_space,
        )
        self.metadata = {**type(self).metadata, "render_fps": self.worlds.metadata["render_fps"]}

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Reset the world; see `TaskVectorEnv.reset`."""
        super().reset(seed=seed)
        return _first(self.worlds.reset(seed=seed)[0]), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Apply an action (A,) for one control period; see `TaskVectorEnv.step`."""
        obs, reward, terminated, truncated, info = self.worlds.step(np.asarray(action)[None])
        extra = {"quarantined": bool(info["quarantined"][0])} if info else {}
        return _first(obs), float(reward[0]), bool(terminated[0]), bool(truncated[0]), extra

    def render(self) -> Any:
        """Draw the world, (HEIGHT, WIDTH, 3) uint8."""
        frames = self.worlds.render()
        return None if frames is None else frames[0]

    def close(self) -> None:
        """Close the world; may be called twice."""
        self.worlds.close()


def _rows(mask: np.ndarray, first: np.ndarray, second: np.ndarray) -> np.ndarray:
    """Return rows of `first` if the mask is True, of `second` elsewhere."""
    return np.where(mask.reshape(-1, *(1,) * (first.ndim - 1)), first, second)


def _first(obs: Any) -> Any:
    return {name: array[0] for name, array in obs.items()} if isinstance(obs, dict) else obs[0]
