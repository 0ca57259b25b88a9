"""The directory of a training run, runs/<task>/<run id>/: its name, its files, and how a run is found again."""

import errno
import hashlib
import json
import os
import re
import secrets
import shlex
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from robot_rl.errors import UserError, suggest
from robot_rl.files import read_plain, read_yaml, write_atomic
from robot_rl.machine import git_state, machine_facts, package_versions
from robot_rl.runs.trust import seal

# YYYYmmdd-HHMMSS-<seed>-<4 hex digits>
RUN_ID = re.compile(r"\d{8}-\d{6}-\d+-[0-9a-f]{4}")
GIVEN_ID = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,99}")
"""Ids that a user may give a run."""
RECORD_HASH = "record_sha256"
"""The key of run.yaml with the hash of everything besides its settings."""
EVALUATIONS = "evaluations.jsonl"
"""The file of a run's directory with a line for each evaluation while it is trained."""
MAX_CONFIG, MAX_RESUMED = 2**20, 100
"""Most bytes of a run.yaml, and most records of resumed trainings in it, which bound its size."""


@dataclass(frozen=True, slots=True)
class RunDir:
    """The directory of one run, <root>/<task>/<run id>, and the files in it; none of them need exist."""

    path: Path

    @classmethod
    def create(cls, root: str | Path, task: str, seed: int, run_id: str | None = None) -> "RunDir":
        """Create the directory of a new run.

        Args:
            root: The directory of all runs.
            task: The task's name.
            seed: The run's seed, a part of its id.
            run_id: Its id, if the user gave one; the directory may exist. None generates a new one.

        Raises:
            UserError: The directory cannot be created (no permission, a file in its place).
            OSError: The disk is full.
        """
        while True:
            name = run_id or f"{time.strftime('%Y%m%d-%H%M%S')}-{seed}-{secrets.token_hex(2)}"
            path = Path(root) / task_folder(task) / name
            try:
                path.mkdir(parents=True, exist_ok=run_id is not None)
            except OSError as error:
                if error.errno in (errno.ENOSPC, errno.EDQUOT):
                    raise
                if run_id is None and path.is_dir():
                    continue
                reason = (error.strerror or str(error)).lower()
                raise UserError(
                    "root", root, f"cannot make {path} ({reason})", "name a directory to write into"
                ) from None
            return cls(path)

    @classmethod
    def find(cls, run: str, root: str | Path = "runs", *, key: str = "run") -> "RunDir":
        """Find a run by its id, by <task>/<id>, by its path, or the newest one by "latest" or <task>/latest.

        Args:
            run: The name that the user gave.
            root: The directory of all runs; a run outside of it is refused.
            key: The setting that named it, for the error.

        Raises:
            UserError: The run does not exist, or the name leads out of `root`.
        """
        base = Path(root)
        if not run:
            raise UserError(f"{key}='': name a run by its id, or {key}=latest")
        known = _runs(base)
        task, _, run_id = run.rpartition("/")
        if run_id == "latest":
            inside = _real(base, root, key)
            named = [path for path in known if not task or path.parent.name in (task, task_folder(task))]
            mine = [path for path in named if _real(path, run, key).is_relative_to(inside)]
            if not mine:
                where = base / task_folder(task) if task else base
                raise UserError(key, run, f"no run in {where}", "robot-rl train makes one")
            return cls(max(mine, key=_age_key))
        return cls(_locate(run, base, known, key))

    @property
    def run_id(self) -> str:
        """Return the run's id: the directory's name."""
        return self.path.name

    @property
    def task(self) -> str:
        """Return the task's name: the name of the directory above; see `task_folder`."""
        return self.path.parent.name

    @property
    def words(self) -> str:
        """Return the run's name on the command line: its id, with its task if another has the same, and its root."""
        root = self.path.parent.parent
        is_alone = all(path.name != self.run_id or path.samefile(self.path) for path in _runs(root))
        name = self.run_id if is_alone else f"{self.task}/{self.run_id}"
        return name if root == Path("runs") else f"{name} root={shlex.quote(str(root))}"

    config_file = property(lambda self: self.path / "run.yaml", doc="The resolved configuration, versions, machine.")
    metrics_file = property(lambda self: self.path / "metrics.jsonl", doc="One line an iteration.")
    checkpoints = property(lambda self: self.path / "checkpoints", doc="The directory of the checkpoints.")
    policy = property(lambda self: self.path / "policy", doc="The policy bundle.")
    eval_file = property(lambda self: self.path / "eval.json", doc="The evaluation of the torch and the ONNX policy.")
    video_file = property(lambda self: self.path / "video.mp4", doc="The film.")

    def write_config(
        self, config: dict[str, Any], command: list[str], described: Mapping[str, Any] | None = None
    ) -> None:
        """Write run.yaml: the resolved configuration and everything else that repeats the run.

        Args:
            config: The resolved configuration.
            command: The command line.
            described: Further entries that describe the task, for reports.
        """
        record = {
            "run_id": self.run_id,
            "created": time.strftime("%Y-%m-%dT%H:%M:%S%z"),
            "command": command,
            "config": config,
            "versions": package_versions(),
            "git": git_state(),
            "machine": machine_facts(),
        }
        self._write(record | dict(described or {}), config)

    def note_resumed(
        self,
        config: dict[str, Any],
        command: list[str],
        iteration: int,
        notes: Sequence[str] = (),
        changes: Mapping[str, Any] | None = None,
    ) -> None:
        """Record in run.yaml that the run was resumed, and the configuration since then.

        The newest MAX_RESUMED records are kept; the oldest of them also includes the changes before it.

        Args:
            config: The resolved configuration.
            command: The command line.
            iteration: Iterations that were done.
            notes: Lines about the changes.
            changes: The differences of the configuration, by `robot_rl.runs.agreement.changes`.
        """
        record = self.read_config()
        if "init_from" in record["config"]:  # A resumed run is still the one with these initial weights.
            config = {**config, "init_from": record["config"]["init_from"]}
        event = {"at": time.strftime("%Y-%m-%dT%H:%M:%S%z"), "iteration": iteration, "command": command}
        event |= {"told": list(notes)} if notes else {}
        event |= changes or {}
        resumed = [*record.get("resumed", []), {**event, "git": git_state()}]
        while len(resumed) > MAX_RESUMED:
            dropped = resumed.pop(0)
            if "changed" in dropped and "changed" in resumed[0]:
                resumed[0]["changed"] = {**dropped["changed"], **resumed[0]["changed"]}
        self._write(record | {"config": config, "resumed": resumed}, config)

    def add_to_config(self, entries: Mapping[str, Any]) -> None:
        """Add entries to run.yaml, or replace them; the settings stay."""
        record = self.read_config()
        self._write(record | dict(entries), record["config"])

    def _write(self, record: dict[str, Any], config: dict[str, Any]) -> None:
        import yaml

        record |= {"config_sha256": config_hash(config)} | seal(config)
        record[RECORD_HASH] = record_hash(record)
        write_atomic(self.config_file, yaml.safe_dump(record, sort_keys=False, allow_unicode=True, width=120))

    def read_config(self) -> dict[str, Any]:
        """Return the content of run.yaml; raise UserError if it is missing or damaged."""
        try:
            content = read_plain(self.config_file, MAX_CONFIG)
        except FileNotFoundError:
            raise UserError(f"{self.config_file}: missing, the run's configuration is unknown") from None
        try:
            record = read_yaml(content.decode())
        except ValueError as error:
            raise UserError(f"{self.config_file}: damaged, {error}") from None
        if not isinstance(record, dict) or not isinstance(record.get("config"), dict):
            raise UserError(f"{self.config_file}: damaged, it has no 'config'")
        resumed = record.get("resumed", [])
        if not isinstance(resumed, list) or not all(_is_event(event) for event in resumed):
            raise UserError(f"{self.config_file}: damaged, its 'resumed' is not a list of records")
        if not isinstance(record.get("command", []), list):
            raise UserError(f"{self.config_file}: damaged, its 'command' is not a list of words")
        return record


def config_hash(config: Mapping[str, Any]) -> str:
    """Return the SHA-256 of settings, in hexadecimal: of their JSON with sorted keys."""
    text = json.dumps(config, sort_keys=True, default=str, allow_nan=True)
    return hashlib.sha256(text.encode()).hexdigest()


def record_hash(record: Mapping[str, Any]) -> str:
    """Return the SHA-256 of run.yaml without the settings: of its command, launcher, versions and the like."""
    others = ("config", "config_sha256", "seal", "resumed", RECORD_HASH)
    return config_hash({key: value for key, value in record.items() if key not in others})


def _is_event(event: Any) -> bool:
    """Return whether a value is a record of `RunDir.note_resumed`, in today's form or an earlier one."""
    return (
        isinstance(event, Mapping)
        and isinstance(event.get("iteration"), int)
        and isinstance(event.get("changed", {}), Mapping)
        and isinstance(event.get("gone", []), list)
    )


def check_run_id(run_id: Any, setting: str = "run_id") -> str:
    """Return the id that a user gave a run, or the like; raise UserError if no directory may have that name."""
    name = str(run_id)
    if not GIVEN_ID.fullmatch(name) or name == "latest":
        right = "up to 100 of A to Z, a to z, 0 to 9, _ - and . (the last two not as the first), and not 'latest'"
        raise UserError(setting, name[:120], f"must be {right}")
    return name


def task_folder(task: str) -> str:
    """Return the folder of a task's runs: its name as a path can contain it (gym-ALE-Pong-v5 of gym:ALE/Pong-v5)."""
    return re.sub(r"[:/\\]", "-", task)


def _runs(root: Path) -> list[Path]:
    """Return the directories of all runs under `root`: those with a run.yaml."""
    return [path.parent for path in root.glob("*/*/run.yaml")]


def newest_runs(root: Path) -> list[Path]:
    """Return the directories of all runs under `root`, the newest first."""
    return sorted(_runs(root), key=_age_key, reverse=True)


def _real(path: Path, named: object, key: str) -> Path:
    """Return a path with links followed; for links in a circle the path itself."""
    try:
        return Path(os.path.realpath(path))
    except ValueError:
        raise UserError(key, named, "is not a valid path", "name a run by its id") from None


def _age_key(path: Path) -> tuple[str, int]:
    """Return the order of a run: the time in its id, or of run.yaml if the id was given; then that of run.yaml."""
    written = (path / "run.yaml").stat().st_mtime_ns
    if RUN_ID.fullmatch(path.name):
        return path.name[:15], written
    return time.strftime("%Y%m%d-%H%M%S", time.localtime(written // 10**9)), written


def _locate(run: str, base: Path, known: list[Path], key: str) -> Path:
    """Return the directory in `known` that `run` names, as an id, <task>/<id> or a path."""
    inside = _real(base, base, key)
    task, _, run_id = run.rpartition("/")
    wanted = {_real(path, run, key) for path in (base / run, base / task_folder(task) / run_id, Path(run))}
    namesakes = sorted(f"{path.parent.name}/{path.name}" for path in known if path.name == run)
    if len(namesakes) > 1:
        raise UserError(key, run, f"{len(namesakes)} runs have this id", f"write {' or '.join(namesakes)}")
    for path in known:
        if path.name == run or _real(path, run, key) in wanted:
            if not _real(path, run, key).is_relative_to(inside):
                raise UserError(key, run, f"leads out of {base}", "name a run inside of it by its id")
            return path
    if Path(run).is_absolute() or ".." in Path(run).parts:
        raise UserError(key, run, f"not a run in {base}", "name a run inside of it by its id, or change root=")
    if not known:
        raise UserError(key, run, f"no run in {base} yet", "robot-rl train makes one")
    newest = sorted(known, key=_age_key)[-20:]
    nearest = suggest(Path(run).name, [path.name for path in newest])
    raise UserError(key, run, f"no such run in {base}", nearest)
