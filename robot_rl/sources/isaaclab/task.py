"""A task that is an environment of Isaac Lab, named ``isaac/<id>``."""

from __future__ import annotations

import contextlib
import importlib
import socket
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlparse
from urllib.request import getproxies

from robot_rl.errors import UserError
from robot_rl.sources.external import one_line
from robot_rl.sources.isaaclab import settings
from robot_rl.sources.isaaclab.lab import PREFIX, find_spec, hushed

if TYPE_CHECKING:
    from robot_rl.sources.isaaclab.adapter import LabEnv

NEWTON = "newton_mjwarp"
"""Isaac Lab's preset of the physics that needs no Isaac Sim."""
PATIENCE_S = 5.0
"""How long to wait for the server of a store [s]."""


@dataclass(kw_only=True, slots=True)
class IsaacTask:
    """An environment of Isaac Lab, and how it is made.

    Attributes:
        name: "isaac/" and the environment's id, with "<module>:" before the id if a module registers it.
        physics: A preset of the environment's physics; "auto": its own, or Newton if its own needs an Isaac Sim that
            is not installed.
        presets: Further presets of the environment, separated by commas.
        assets: Where to look for USD files; "" only in Isaac Lab's store, "own" among those of this project.
        action_clip: Bound of the actions; None without one.
        settings: Values of the environment's configuration by dotted name.
    """

    name: str
    physics: str = "auto"
    presets: str = ""
    assets: str = ""
    action_clip: float | None = None
    settings: dict[str, Any] = field(default_factory=dict)

    @property
    def id(self) -> str:
        """Return the environment's id, without its module."""
        return self.name.removeprefix(PREFIX).rpartition(":")[2]

    @property
    def folder(self) -> Path | None:
        """Return the folder of USD files; raise UserError if it does not exist."""
        if not self.assets:
            return None
        folder = settings.OWN_ASSETS if self.assets == "own" else Path(self.assets).expanduser()
        if not folder.is_dir():
            raise UserError(
                "assets", self.assets, "is no folder", "own stands for the files that come with the project"
            )
        return folder

    def load_cfg(self, num_envs: int | None = None, device: str = "cpu") -> Any:
        """Return the environment's configuration, with presets and settings applied.

        Args:
            num_envs: Number of worlds; the environment's own where None.
            device: "cpu" or "cuda:<index>".
        """
        find_spec(self.name)
        cfg = self._compose(num_envs, device)
        for part in settings.walk(cfg):
            if getattr(part, "debug_vis", False) is True:
                part.debug_vis = False  # Markers in a window that does not exist, of files from the store.
        for path, value in self.settings.items():
            settings.put(cfg, path, value)
        if device == "cpu" and hasattr(cfg.sim.physics, "use_cuda_graph"):
            cfg.sim.physics.use_cuda_graph = False
        return cfg

    def _compose(self, num_envs: int | None, device: str) -> Any:
        """Return the configuration with its presets; with Newton if the task's own physics is not available."""
        chosen = [f"presets={self.presets}"] if self.presets else []
        if self.physics != "auto":
            return self._parse([*chosen, f"physics={self.physics}"], num_envs, device)
        cfg = self._parse(chosen, num_envs, device)
        return cfg if _can_run(cfg) else self._parse([*chosen, f"physics={NEWTON}"], num_envs, device)

    def _parse(self, overrides: list[str], num_envs: int | None, device: str) -> Any:
        from isaaclab_tasks.utils import parse_env_cfg

        try:
            with hushed():
                return parse_env_cfg(self.id, device=device, num_envs=num_envs, overrides=overrides)
        except ValueError as problem:
            raise UserError("task", self.name, f"{one_line(problem)} (requested: {' '.join(overrides)})") from problem

    def load_agent(self) -> Any:
        """Return the settings of the environment's rsl_rl agent; None if it has none."""
        from isaaclab_tasks.utils import load_cfg_from_registry, resolve_presets

        if "rsl_rl_cfg_entry_point" not in find_spec(self.name).kwargs:
            return None
        with hushed():
            return resolve_presets(load_cfg_from_registry(self.id, "rsl_rl_cfg_entry_point"))

    def make_lab_env(self, num_envs: int, *, seed: int | None = None, device: str = "cpu", cfg: Any = None) -> Any:
        """Make Isaac Lab's own environment, of any kind, and return it with the stack to close after it.

        Args:
            num_envs: Number of worlds.
            seed: Of the worlds.
            device: "cpu" or "cuda:<index>".
            cfg: Its configuration, from `load_cfg`, to change more of it.

        Raises:
            UserError: As `load_cfg`, a missing file, Isaac Sim if it is needed and not installed, or a configuration
                that Isaac Lab refuses.
        """
        import gymnasium

        cfg = self.load_cfg(num_envs, device) if cfg is None else cfg
        cfg.seed = seed
        if hasattr(cfg, "compute_final_obs"):
            cfg.compute_final_obs = True
        after = contextlib.ExitStack()
        try:
            with hushed():
                settings.localize(cfg, self.folder, _in_store, self.name)
                self._launch(cfg, after)
                with _lent(self.folder):
                    env: Any = gymnasium.make(self.id, cfg=cfg).unwrapped
        except BaseException as problem:
            after.close()
            line = f"task={self.name}: {one_line(problem)}"
            if isinstance(problem, FileNotFoundError):
                raise UserError(f"{line}; put the file into a folder and give assets=<folder>") from problem
            # Isaac Lab's ValueError: a name that the robot does not have, and much else.
            if isinstance(problem, ValueError) and not isinstance(problem, UserError):
                raise UserError(line) from problem
            raise
        after.callback(env.close)
        return env, after

    def _launch(self, cfg: Any, after: contextlib.ExitStack) -> None:
        """Start the simulator of the configuration: nothing for Newton, Isaac Sim if it is needed."""
        from isaaclab.app import launch_simulation

        if not _can_run(cfg):
            needs = f"{self.name} needs Isaac Sim or OvPhysX then, which is not installed here"
            raise UserError("physics", self.physics, needs, f"physics={NEWTON} needs neither")
        after.enter_context(launch_simulation(cfg, {"headless": True, "device": cfg.sim.device}))

    def make_env(self, num_envs: int, *, seed: int | None = None, device: str = "cpu", cfg: Any = None) -> LabEnv:
        """Make the environment that the learner takes; the arguments are those of `make_lab_env`."""
        from robot_rl.sources.isaaclab.adapter import IsaacEnv
        from robot_rl.sources.isaaclab.team import IsaacTeamEnv

        cfg = self.load_cfg(num_envs, device) if cfg is None else cfg
        kind = IsaacTeamEnv if agents_of(cfg) else IsaacEnv
        with self._blamed():
            env, after = self.make_lab_env(num_envs, seed=seed, device=device, cfg=cfg)
            try:
                with hushed():
                    return kind(env, name=self.name, action_clip=self.action_clip, on_close=after.close)
            except BaseException:
                after.close()
                raise

    @contextlib.contextmanager
    def _blamed(self) -> Iterator[None]:
        """Report Isaac Lab's failure in one line where settings or files of the user's may be the cause."""
        try:
            yield
        except UserError:
            raise
        except Exception as problem:
            changed = [f"env.{path}={value}" for path, value in self.settings.items()]
            changed += [f"assets={self.assets}"] if self.assets not in ("", "own") else []
            if not changed:
                raise
            what = f"{type(problem).__name__}: {one_line(problem)}"
            raise UserError("task", self.name, f"Isaac Lab fails with {' '.join(changed)}: {what}") from problem

    def observation_groups(self, cfg: Any) -> dict[str, Any]:
        """Return the observation groups of a configuration by name."""
        if agents_of(cfg):
            return {"policy": cfg.observation_spaces} | ({"state": cfg.state_space} if cfg.state_space else {})
        terms = getattr(cfg, "observations", None)
        if terms is not None and not hasattr(cfg, "observation_space"):
            return {name: group for name, group in settings.children(terms).items() if group is not None}
        states = getattr(cfg, "state_space", 0)
        return {"policy": cfg.observation_space} | ({"critic": states} if isinstance(states, int) and states else {})


def agents_of(cfg: Any) -> tuple[str, ...]:
    """Return the agents of a configuration of a `DirectMARLEnv`; none for an environment of one agent."""
    return tuple(map(str, getattr(cfg, "possible_agents", None) or ()))


def _can_run(cfg: Any) -> bool:
    """Return whether the simulator of a configuration is installed: Newton always is, Isaac Sim is checked."""
    import importlib.util

    from isaaclab.app.sim_launcher import validate_launch

    try:
        _, needs = validate_launch(cfg, {"headless": True})
    except (ImportError, ValueError):
        return False
    names = {type(getattr(cfg.sim, "physics", None)).__name__}
    if "OvPhysxCfg" in names and importlib.util.find_spec("ovphysx") is None:
        return False
    return not needs or importlib.util.find_spec("isaacsim") is not None


@contextlib.contextmanager
def _lent(folder: Path | None) -> Iterator[None]:
    """Find files in a folder also if no setting names them, such as the ground of a terrain."""
    prims: Any = importlib.import_module("isaaclab.sim.utils.prims")
    original = prims.retrieve_file_path

    def retrieve(path: str, *arguments: Any, **options: Any) -> str:
        local = settings.local_file(path, folder, _in_store) if path.startswith(settings.REMOTE) else None
        return original(path if local is None else str(local), *arguments, **options)

    prims.retrieve_file_path = retrieve
    try:
        yield
    finally:
        prims.retrieve_file_path = original


def _in_store(path: str) -> bool:
    """Return whether a file is here, or in Isaac Lab's store and that reachable."""
    from isaaclab.utils.assets import check_file_path

    return _answers(path) and bool(check_file_path(path))


def _answers(url: str) -> bool:
    """Return whether a file's server answers: Isaac Lab tries for more than a minute before it gives up."""
    address = urlparse(url)
    if address.hostname is None or getproxies():
        return True
    try:
        socket.create_connection((address.hostname, address.port or 443), timeout=PATIENCE_S).close()
    except OSError:
        return False
    return True
