"""A package outside of the tree adds a robot, a sensor, a task with its term, an algorithm, a launcher, a command."""

import json

from robot_rl_envs.make import make_env
from robot_rl_tasks.registry import get_task

from robot_rl.cli.main import main

ROBOT = """
import dataclasses
from robot_rl_assets.registry import get_robot
ROBOT = dataclasses.replace(get_robot("cartpole"), name="their_cart")
"""
SENSOR = '''
"""A sonar on the cart: the distance to a wall at each end of the rail."""
from dataclasses import dataclass
from typing import Any
from robot_rl_envs.sensing import Sensor
from robot_rl_envs.terms import Source, observation
import warp as wp

@wp.func
def listen(s: Any, i: int):
    for j in range(2):
        s.sonar[i, j] = s.sonar_wall[0] + s.joint_pos[i, 0] * (1.0 - 2.0 * float(j))

@dataclass(kw_only=True, slots=True)
class Sonar(Sensor):
    wall: float = 3.0

    def sizes(self, at):
        return {"sonar": (2,)}

    def fields(self, sizes, num_envs, at):
        return {"sonar": (wp.float32, 2, (num_envs, 2)), "sonar_wall": (wp.float32, 1, (1,))}

    def constants(self, at):
        return {"sonar_wall": [self.wall]}

    def update(self, at):
        return (listen,)

    def reset(self, at):
        return (listen,)

    def signals(self, state, at):
        return {"measured/sonar": state.sonar.clone()}

    def mirror(self, rule, at):
        return ([1, 0], [1.0, 1.0]) if rule == "sonar" else None

@observation(size="sonar", unit="m", signal="measured/sonar", mirror="sonar", source=Source(uses=("sonar",)))
def sonar(s: Any, i: int, j: int) -> float:
    return s.sonar[i, j]
'''
TASK = """
from typing import Any

from robot_rl_envs.task import Observation, Reward
from robot_rl_envs.terms import reward
from robot_rl_tasks.registry import get_task
import warp as wp

@reward
@wp.func
def slow(s: Any, i: int) -> float:
    return -wp.abs(s.joint_vel[i, 0])

def make_task():
    from theirs.robot import ROBOT
    from theirs.sensor import Sonar, sonar
    task = get_task("cartpole")
    task.name, task.robot = "their_swing", ROBOT
    task.rewards["slow"] = Reward(slow, weight=0.1)
    task.sensors["sonar"] = Sonar()
    task.observations["actor"].terms["sonar"] = Observation(sonar, noise=0.01)
    return task
"""
ALGORITHM = '''
"""PPO that counts its updates."""
from dataclasses import dataclass
from robot_rl.learn.algorithms.ppo.config import PPOLearnerCfg
from robot_rl.learn.algorithms.ppo.ppo import PPO, make_ppo

@dataclass(kw_only=True, slots=True)
class Counting(PPOLearnerCfg):
    name: str = "counting"
    start: int = 0

class CountingPPO(PPO):
    def update(self, rollout, progress=0.0):
        self.count += 1
        return super().update(rollout, progress) | {"theirs/updates": rollout.reward.new_tensor(float(self.count))}

def make_algorithm(cfg, context):
    made = make_ppo(cfg, context, CountingPPO)
    made.count = cfg.start
    return made
'''
LAUNCHER = '''
"""Starts each run in a process, one after the other."""
import subprocess
from dataclasses import dataclass
from typing import ClassVar
from robot_rl.cluster.launchers.launcher import Launcher, Target
from robot_rl.cluster.preflight.finding import warn

@dataclass(kw_only=True, slots=True)
class InTurn(Launcher):
    name: ClassVar[str] = "in_turn"
    targets: ClassVar = {"list": Target(info="Commands, one after the other", options={"mount"}, is_script=True)}
    quietly: bool = False

    def cluster_checks(self, root):
        return [("order", warn(f"quietly={self.quietly}", "one at a time"))]

    @classmethod
    def render(cls, job, target):
        return f"{target} x{job.size}: {' '.join(job.worker)}\\n"

    def submit(self, runs, folder):
        return max(subprocess.call(run.command(), stdout=subprocess.DEVNULL if self.quietly else None) for run in runs)
'''
COMMAND = '''
"""Count the runs of a task.

usage: robot-rl count-runs TASK
"""
from pathlib import Path

def run(arguments):
    print(len(list(Path("runs", *arguments).glob("*/run.yaml"))))
    return 0
'''
GROUPS = {
    "robot_rl.robots": {"their_cart": "theirs.robot:ROBOT"},
    "robot_rl.tasks": {"their_swing": "theirs.task:make_task"},
    "robot_rl.algorithms": {"counting": "theirs.algorithm:Counting"},
    "robot_rl.launchers": {"in_turn": "theirs.launcher:InTurn"},
    "robot_rl.commands": {"count-runs": "theirs.command", "no-runs": "theirs.command:Path"},
}
SMALL = (
    "num_envs=4",
    "num_steps=8",
    "episode_length_s=0.06",
    "ppo.minibatches=1",
    "max_iterations=2",
    "num_threads=1",
    "device=cpu",
)


def test_a_run_with_all_of_them(install, monkeypatch, tmp_path, capsys):
    texts = {
        "robot": ROBOT,
        "sensor": SENSOR,
        "task": TASK,
        "algorithm": ALGORITHM,
        "launcher": LAUNCHER,
        "command": COMMAND,
    }
    folder = install("theirs", GROUPS, {f"theirs.{name}": text for name, text in texts.items()})
    monkeypatch.setenv("PYTHONPATH", str(folder), prepend=":")  # For the process that the launcher starts.
    monkeypatch.chdir(tmp_path)
    words = ("task=their_swing", "learner=counting", "start=40", "launcher=in_turn", "launcher.quietly=true")
    assert main(["train", *words, "run_id=a", "rewards.slow.weight=0.2", "sensors.sonar.wall=2", *SMALL]) == 0
    rows = [json.loads(line) for line in (tmp_path / "runs/their_swing/a/metrics.jsonl").read_text().splitlines()]
    assert [row["theirs/updates"] for row in rows] == [41.0, 42.0]
    assert all(row["reward/slow"] < 0.0 for row in rows)
    capsys.readouterr()
    env = make_env(get_task("their_swing"), num_envs=1, device="cpu")
    assert env.describe_policy()["observations"][-1]["signal"] == "measured/sonar"
    assert env.robot_state()["measured/sonar"].sum() == 6.0
    env.close()
    assert main(["train", "task=their_swing", "~sensors.sonar"]) == 2
    assert "observations.actor.sonar='sonar': reads the sensor 'sonar'; there are" in capsys.readouterr().err
    assert main(["manifest", "a", "target=list", "nodes=2", "mount=/x"]) == 0
    assert capsys.readouterr().out == "list x2: robot-rl worker /x/their_swing/a\n"
    assert main(["manifest", "a", "target=list", "queue=b"]) == 2
    assert "queue=b: does not affect target=list" in capsys.readouterr().err
    assert main(["preflight", "launcher=in_turn", "launcher.quietly=true"]) in (0, 1)
    assert "quietly=True" in capsys.readouterr().out
    assert main(["manifest", "--help"]) == 0
    assert "  list     Commands, one after the other\n" in capsys.readouterr().out
    assert main(["count-runs", "their_swing"]) == 0
    assert capsys.readouterr().out == "1\n"
    assert main(["--help"]) == main(["count-runs", "--help"]) == 0
    help_text = capsys.readouterr().out
    assert "count-runs    of theirs" in help_text
    assert "usage: robot-rl count-runs TASK" in help_text
    assert main(["no-runs"]) == main(["no-runs", "--help"]) == 2
    assert "command=no-runs: is <class 'pathlib.Path'>; must be a module with run" in capsys.readouterr().err
    assert main(["count-run"]) == 2
    assert "did you mean 'count-runs'?" in capsys.readouterr().err
