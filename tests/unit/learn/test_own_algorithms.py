"""An algorithm is one module: a class with its settings that builds it, named by "module:Class" or an entry point."""

import json
import sys
import textwrap
from pathlib import Path
from types import SimpleNamespace

import pytest
from robot_rl_assets import plugins

from robot_rl.cli.main import main
from robot_rl.errors import UserError
from robot_rl.learn.algorithms import REGISTRY, get_learner, read_learner
from robot_rl.learn.algorithms.ppo.config import PPOLearnerCfg

REINFORCE = '''
from dataclasses import dataclass

import torch

from robot_rl.learn.algorithms.ppo.config import PPOLearnerCfg
from robot_rl.learn.algorithm import Algorithm
from robot_rl.learn.build import make_actor
from robot_rl.learn.optim import FlatAdam


@dataclass(kw_only=True, slots=True)
class Reinforce(PPOLearnerCfg):
    """The policy gradient (Williams 1992) over single steps."""

    step_size: float = 1e-3

    def __post_init__(self):
        PPOLearnerCfg.__post_init__(self)
        if not 0.0 < self.step_size < 1.0:
            raise ValueError(f"step_size={self.step_size}: must lie in (0, 1)")


def make_algorithm(cfg, context):
    return Gradient(cfg, context)


class Gradient(Algorithm):
    def __init__(self, cfg, context):
        generator = torch.Generator().manual_seed(context.seed)
        self.actor = make_actor(cfg, context.dims, context.mirrors, generator).to(context.device)
        self.optimizer = FlatAdam([self.actor], cfg.step_size, 1.0, ranks=context.ranks)

    def modules(self):
        return {"actor": self.actor}

    def state(self):
        return {f"adam.{name}": tensor for name, tensor in self.optimizer.state_dict().items()}

    def load_state(self, state):
        names = self.optimizer.state_dict()
        self.optimizer.load_state_dict({name: state[f"adam.{name}"] for name in names})

    def update(self, rollout, progress):
        out = self.actor.outputs(self.actor.encode(rollout.actor_obs.flatten(0, 1)))
        log_prob = self.actor.distribution.log_prob(rollout.action.flatten(0, 1), self.actor.distribution.params(out))
        loss = -(log_prob * rollout.reward.flatten()).mean()
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        return {"loss/reinforce": loss.detach()}
'''
TRAIN = ("train", "task=cartpole", "num_envs=4", "num_steps=4", "actor.hidden=[8]", "num_threads=1", "run_id=a")


@pytest.fixture
def module(tmp_path, monkeypatch):
    """A package of one's own, importable and in an empty current directory; returns a function that writes a module."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    written = []

    def write(name, text):
        (tmp_path / f"{name}.py").write_text(textwrap.dedent(text))
        written.append(name)

    yield write
    for name in written:
        sys.modules.pop(name, None)


def add_entry_points(monkeypatch, *points):
    """Let these (name, value, distribution) be installed."""
    found = [
        SimpleNamespace(name=name, value=value, dist=SimpleNamespace(name=distribution))
        for name, value, distribution in points
    ]
    monkeypatch.setattr(plugins.metadata, "entry_points", lambda group: found if group == "robot_rl.algorithms" else [])


@pytest.mark.long
def test_it_trains_goes_on_and_exports_from_the_command_line(module, capsys):
    module("mine_rl", REINFORCE)
    assert main([*TRAIN, "learner=mine_rl:Reinforce", "step_size=0.01", "max_iterations=2"]) == 0
    assert main(["resume", "run=cartpole/a", "max_iterations=3"]) == 0
    rows = [json.loads(line) for line in Path("runs/cartpole/a/metrics.jsonl").read_text().splitlines()]
    assert [row["iteration"] for row in rows] == [1, 2, 3]
    assert all("loss/reinforce" in row for row in rows)
    assert "step_size: 0.01" in Path("runs/cartpole/a/run.yaml").read_text()
    assert main(["export", "run=cartpole/a"]) == 0
    assert Path("runs/cartpole/a/policy/policy.onnx").is_file()
    capsys.readouterr()


def test_settings_that_do_not_check_are_one_line(module, capsys):
    module("mine_rl", REINFORCE)
    assert main([*TRAIN, "learner=mine_rl:Reinforce", "step_size=3.0"]) == 2
    err = capsys.readouterr().err
    assert "learner=mine_rl:Reinforce: its settings do not check, ValueError: step_size=3.0: must lie in (0, 1)" in err
    assert err.count("\n") == 1
    assert not Path("runs").exists()


def test_what_is_installed_has_a_name(module, monkeypatch):
    module("mine_rl", REINFORCE)
    add_entry_points(monkeypatch, ("reinforce", "mine_rl:Reinforce", "mine"))
    assert {"ppo", "distill", "flashsac", "rsl_rl", "reinforce"} <= set(REGISTRY.describe())
    cfg = read_learner({"name": "reinforce", "step_size": 0.5})
    assert (cfg.name, cfg.step_size, isinstance(cfg, PPOLearnerCfg)) == ("reinforce", 0.5, True)


@pytest.mark.parametrize(
    ("points", "name", "message"),
    [
        (
            [("bad", "breaks_rl:Cfg", "bad-package")],
            "bad",
            r"learner=bad: the plug-in of bad-package cannot be used: breaks_rl fails at its import",
        ),
        (
            [("one", "mine_rl:Reinforce", "first"), ("one", "mine_rl:Reinforce", "second")],
            "one",
            "learner=one: the plug-in of first and of second have the same name; uninstall one of them",
        ),
        ([("no", "mine_rl:Gradient", "wrong")], "no", r"learner=no: is <class .*must be a subclass of"),
        ([], "pppo", "learner=pppo: must be one of .*did you mean 'ppo'"),
        ([], "mine_rl:Nothing", "learner=mine_rl:Nothing: mine_rl has no 'Nothing'"),
    ],
)
def test_plug_ins_that_do_not_work_are_one_line_and_the_others_go_on(module, monkeypatch, points, name, message):
    module("mine_rl", REINFORCE)
    module("breaks_rl", "1 / 0")
    add_entry_points(monkeypatch, *points)
    with pytest.raises(UserError, match=message) as error:
        get_learner(name)
    assert "\n" not in str(error.value)
    assert get_learner("distill").__name__ == "DistillLearnerCfg"


LOSS = '''
from robot_rl.learn.auxiliaries.auxiliary import Auxiliary


class Calm(Auxiliary):
    """Draws the mean action to zero."""

    name = "calm"
    capturable = True

    def __init__(self, context):
        super().__init__()

    def loss(self, batch, params):
        return 0.1 * params[0].square().mean()
'''


def test_an_objective_of_ones_own_takes_part_and_is_not_lost_on_resume(module, capsys):
    module("mine_loss", LOSS)
    assert main([*TRAIN, "auxiliaries=[mine_loss:Calm]", "max_iterations=2"]) == 0
    meta = json.loads(next(Path("runs/cartpole/a/checkpoints").glob("*2/meta.json")).read_text())
    assert meta["auxiliaries"] == {"calm": {}}
    assert main(["resume", "run=cartpole/a", "max_iterations=3"]) == 0
    capsys.readouterr()
    assert main(["resume", "run=cartpole/a", "max_iterations=4", "auxiliaries=[]"]) == 2
    assert "auxiliaries: the run was trained with 'calm', which is missing here" in capsys.readouterr().err
