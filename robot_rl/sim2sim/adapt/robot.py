"""The robot of an adaptation, a separate process: it runs in real time, and waits for nobody.

The robot's binary commands the plant at 500 Hz and takes newer bundles between two control steps. For each control step
a line of JSON goes to standard output, with figures that a robot's log lacks: the reward, and the critic's observation,
as a laboratory would measure it.
"""

from __future__ import annotations

import contextlib
import gc
import json
import signal
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from robot_rl.errors import PeerError, UserError
from robot_rl.learn.dims import make_env_spec
from robot_rl.settings import from_dict, to_dict
from robot_rl.sim2sim.adapt.plants import PlantCfg, make_plant
from robot_rl.sim2sim.binary import ModuleProcess
from robot_rl.sim2sim.commands import ActionReader
from robot_rl.sim2sim.figures import Tracking
from robot_rl.sim2sim.plant import LONE
from robot_rl.sim2sim.session import Session, SessionCfg

if TYPE_CHECKING:
    from robot_rl_envs.task import Task

    from robot_rl.settings import LearnerCfg

PIPE_BYTES = 1 << 20
"""Of the pipe to the learner: eight seconds of rows, so that a robot does not wait for a learner that is busy."""
KEPT_NOTES = 1000
"""Number of notes of commands in memory: hours of them would fill it."""


@dataclass(kw_only=True, slots=True)
class RobotCfg:
    """Settings of a robot; plain values, for another process.

    Attributes:
        run: Directory of the run that has the settings of task and learner.
        plant: The plant.
        bundle: The bundle to begin with.
        folder: Directory for the binary's report and the plant's model.
        seconds: Time under the policy [s].
        follow: Folder in which newer bundles are announced; empty: none.
        log: File of the binary's log; empty: none.
        explore: Standard deviation of the exploration, of the raw action; 0: none.
        settings: Further settings of the binary.
    """

    run: str
    plant: PlantCfg = field(default_factory=PlantCfg)
    bundle: str
    folder: str
    seconds: float
    seed: int = 0
    follow: str = ""
    log: str = ""
    explore: float = 0.0
    settings: dict[str, float] = field(default_factory=dict)


class Observed(Session):
    """A session of one robot that reports each control step."""

    def __init__(self, task: Task, bundle: Path, cfg: SessionCfg, folder: Path, *, learner: LearnerCfg) -> None:
        """Build the world and start the binary; see `Session`. The critic that sees it is the learner's."""
        super().__init__(task, {LONE: bundle}, cfg, folder)
        body = self.robot.body
        self._env, self._link = body.env, self.robot.link
        self._layout = make_env_spec(self._env, learner).critic_layout
        self._reader = ActionReader(self._link.contract, body.joint_names)
        self._ticks = self._env.cfg.sim.decimation
        self._first, self._phase_before = 0, ""
        self._critic = self._critic_obs(self._env.get_observations())
        self.plant.on_period = self._act
        self.on_step = self._report

    def _steer(self) -> None:
        """Send the operator's message, and begin the control step when the policy begins its own."""
        super()._steer()
        self._align()
        self._first, self._phase_before = int(self._link.low.sequence) + 1, self._link.phase

    def _align(self) -> None:
        """Run ticks until the policy is due at the next state."""
        notes = self._link.notes
        answered = [note.state_sequence for note in reversed(notes[-100:]) if note.from_policy]
        past = (int(self._link.low.sequence) + 1 - answered[0]) % self._ticks if answered else 0
        if past:
            self.plant.advance(self._ticks - past)
        del notes[:-KEPT_NOTES]

    def _act(self) -> None:
        """Give the environment the command of the joints as an action, for the rewards."""
        command, state = self.robot.body.command, self._env.state
        if command is None:
            return
        operator = state.command[0].cpu().numpy() if self.robot.info is not None else None
        state.action[0] = torch.from_numpy(self._reader.read(command.q, command.dq, command.tau, operator))

    def _critic_obs(self, obs: Any) -> list[float]:
        """Return the critic's observation (C,)."""
        return self._layout.gather(obs, torch.empty(1, self._layout.size))[0].tolist()

    def _report(self) -> None:
        obs, reward, done, extras = self.stepped
        ended, critic, tracking = bool(done[0]), self._critic, self.robot.figures
        self._critic = self._critic_obs(obs)
        row = {
            "sequence": self._first,
            "phase": self.robot.phase if self.robot.phase == self._phase_before else "",
            "critic": critic,
            "after": self._critic_obs(extras["final_obs"]) if ended else self._critic,
            "reward": float(reward[0]),
            "ended": ended,
            "timed_out": bool(extras["time_outs"][0]),
            "valid": bool(extras["valid"][0]) if "valid" in extras else True,
            "errors": tracking.newest if isinstance(tracking, Tracking) else {},
        }
        _write(row)


def make_session(cfg: RobotCfg) -> Observed:
    """Build the session of a robot; see `Session` for its errors."""
    from robot_rl.runs.run_dir import RunDir
    from robot_rl.runs.settings import load

    train = load(RunDir(Path(cfg.run)), trust=True)
    task, _ = make_plant(train.task, cfg.plant, Path(cfg.folder))
    settings = dict(cfg.settings)
    if cfg.explore:
        settings |= {"explore_std": cfg.explore, "explore_seed": float(cfg.seed)}
    session = SessionCfg(
        seconds=cfg.seconds,
        seed=cfg.seed,
        settings=settings,
        log=cfg.log,
        arguments=("--follow", cfg.follow) if cfg.follow else (),
    )
    return Observed(task, Path(cfg.bundle), session, Path(cfg.folder), learner=train.learner)


class RobotProcess(ModuleProcess):
    """A robot that runs; read `rows` until they end, then `report`."""

    def __init__(self, cfg: RobotCfg) -> None:
        """Start the process."""
        # In a separate session: Ctrl-C is the learner's, which ends the robot in order.
        options = {"start_new_session": True, "pipesize": PIPE_BYTES}
        super().__init__("robot_rl.sim2sim.adapt.robot", json.dumps(to_dict(cfg)), **options)
        self.report: dict[str, Any] = {}

    def rows(self) -> Iterator[Mapping[str, Any]]:
        """Yield the row of each control step, as they come.

        Raises:
            UserError: It could not be built, or the binary ended.
        """
        for line in self.output:
            if not line.startswith("{"):  # Of a library.
                continue
            row = json.loads(line)
            if "problem" in row:
                raise UserError(row["problem"])
            if "report" in row:
                self.report = row["report"]
                return
            yield row
        raise UserError(f"the robot's process ended with {self.process.wait()}; its last line is above")

    def request_stop(self) -> None:
        """Let the robot damp and end; the report follows the rows."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)


def main(arguments: Sequence[str]) -> int:
    """Run the process: its settings as JSON."""
    cfg, stop = from_dict(RobotCfg, json.loads(arguments[0])), []
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.append(True))
    torch.set_num_threads(1)
    try:
        with contextlib.closing(make_session(cfg)) as session:
            gc.collect()
            gc.freeze()  # A collection that looks at everything takes longer than a state may be late.
            session.run(lambda: bool(stop))
            _write({"report": session.report()})
            gc.unfreeze()
    except (UserError, PeerError, ValueError) as error:
        _write({"problem": " ".join(str(error).split())})
        return 1
    return 0


def _write(row: Mapping[str, Any]) -> None:
    sys.stdout.write(json.dumps(row, default=_plain) + "\n")
    sys.stdout.flush()


def _plain(value: Any) -> Any:
    return value.tolist() if isinstance(value, np.ndarray | np.generic) else str(value)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
