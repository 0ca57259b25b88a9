"""sweeper=optuna: what is refused, what is searched, and a search that is ended and goes on."""

import json

import pytest

from robot_rl.cluster import search as module
from robot_rl.cluster.search import Search, SearchCfg, Space
from robot_rl.errors import Interrupted, UserError
from robot_rl.runs.settings import default_tree, resolve
from robot_rl.settings.tree import override

SPACES = (
    Space(key="ppo.learning_rate", low=1e-4, high=1e-3, log=True),
    Space(key="ppo.gamma", choices=("0.9", "0.95")),
)


class Process:
    """A training that writes a row an iteration when it is looked at, better with a larger gamma."""

    started: list = []  # noqa: RUF012

    def __init__(self, command, **_):
        words = dict(word.split("=", 1) for word in command if "=" in word and "\n" not in word)
        self.path = Process.root / "cartpole" / words["run_id"]
        self.gamma, self.returncode, self.pid = float(words["ppo.gamma"]), None, -1
        self.path.mkdir(parents=True, exist_ok=True)
        Process.started.append(words["run_id"])

    def poll(self):
        rows = (self.path / "metrics.jsonl").read_text().splitlines() if (self.path / "metrics.jsonl").exists() else []
        if self.returncode is None and len(rows) < 10:
            row = {"iteration": len(rows) + 1, "tracking/upright": self.gamma}
            with (self.path / "metrics.jsonl").open("a") as file:
                file.write(json.dumps(row) + "\n")
        elif self.returncode is None:
            self.returncode = 0
        return self.returncode

    def wait(self):
        self.returncode = 85


@pytest.fixture
def make(tmp_path, monkeypatch):
    """Return a function that makes a search in a directory of its own, with trainings that are none."""
    Process.root, Process.started = tmp_path, []
    monkeypatch.setattr(module.subprocess, "Popen", Process)
    monkeypatch.setattr(module.time, "sleep", lambda _: None)
    monkeypatch.setattr(module.os, "kill", lambda pid, number: None)
    tree = override(default_tree("cartpole", "cpu"), {"num_envs": 4, "max_iterations": 10, "root": str(tmp_path)})

    def make(spaces=SPACES, words=("task=cartpole",), say=None, **cfg):
        lines = []
        search = Search(cfg=SearchCfg(**cfg), base=resolve(tree), words=words, spaces=spaces, say=say or lines.append)
        return search, lines

    return make


def test_the_best_of_all_trials_is_named_with_its_values(make):
    search, lines = make(trials=6, startup=6)
    assert search.run() == 0
    assert Process.started == [f"search-{k:04d}" for k in range(6)]
    assert search.study.best_trial.value == pytest.approx(0.95)
    assert "best of 6: tracking/upright 0.95 with " in lines[-2]
    assert "ppo.gamma=0.95" in lines[-2]


def test_a_search_that_was_ended_goes_on_with_the_run_that_it_was_at(make):
    def stop(line):
        if line.startswith("search-0002:"):
            raise Interrupted(None, 0)

    with pytest.raises(Interrupted):
        make(trials=4, startup=4, say=stop)[0].run()
    values = json.dumps(make(trials=4, startup=4)[0]._open().trials[2].params)
    search, _ = make(trials=4, startup=4)
    search.run()
    assert Process.started == ["search-0000", "search-0001", "search-0002", "search-0002", "search-0003"]
    assert json.dumps(search.study.trials[2].params) == values
    assert [trial.state.name for trial in search.study.trials] == ["COMPLETE"] * 4


def test_a_trial_worse_than_the_median_is_pruned(make):
    search, lines = make(trials=5, startup=2)
    study = search._open()
    for gamma in ("0.95", "0.95", "0.95", "0.9"):
        study.enqueue_trial({"ppo.gamma": gamma, "ppo.learning_rate": 1e-3})
    search.run()
    assert [trial.state.name for trial in search.study.trials][:4] == ["COMPLETE"] * 3 + ["PRUNED"]
    assert any(line.startswith("search-0003: pruned after ") for line in lines)


def test_another_search_under_the_same_name_is_refused(make):
    make(trials=1)[0].run()
    with pytest.raises(UserError, match=r"sweeper\.name=search: was begun with the settings"):
        make(trials=1, words=("task=cartpole", "seed=2"))[0].run()
    with pytest.raises(UserError, match=r"sweeper\.name=search: was begun with the space"):
        make(trials=1, spaces=SPACES[:1])[0].run()


def test_the_launcher_may_be_another_one_when_the_search_goes_on(make):
    make(trials=1)[0].run()
    assert make(trials=2, words=("task=cartpole", "launcher=torchrun"))[0].run() == 0


def test_a_metric_that_the_runs_lack_ends_the_search_after_one(make):
    search, _ = make(metric="tracking/uprigt", direction="maximize")
    with pytest.raises(
        UserError, match=r"sweeper\.metric=tracking/uprigt: is not a metric of search-0000; did you mean"
    ):
        search.run()
    assert len(Process.started) == 1


def test_a_metric_of_ones_own_needs_a_direction(make):
    with pytest.raises(UserError, match=r"sweeper\.metric=episode/length_s: says not which is better"):
        make(metric="episode/length_s")[0].goal()
    assert make(metric="a", direction="minimize")[0].goal() == ("a", "minimize")
    assert make()[0].goal() == ("tracking/upright", "maximize")


def test_refused_settings_are_a_failed_trial_and_the_search_goes_on(make, monkeypatch):
    class Picky(Process):
        def poll(self):
            code = super().poll()
            return code if self.gamma != 0.9 else 2

        @property
        def returncode(self):
            return 2 if self.gamma == 0.9 else self._code

        @returncode.setter
        def returncode(self, code):
            self._code = code

    monkeypatch.setattr(module.subprocess, "Popen", Picky)
    monkeypatch.setattr(module, "_last_line", lambda path: "robot-rl: ppo.gamma=0.9: is refused")
    search, lines = make(trials=8)
    assert search.run() == 1
    states = [trial.state.name for trial in search.study.trials]
    assert (len(states), set(states)) == (8, {"COMPLETE", "FAIL"})
    assert sum("is refused" in line for line in lines) == states.count("FAIL")
    assert "RUNNING" not in states
    only = make(spaces=(Space(key="ppo.gamma", choices=("0.9",)),), trials=8, name="wrong")[0]
    with pytest.raises(UserError, match=r"wrong-0002: robot-rl: ppo\.gamma=0\.9: is refused"):
        only.run()
    assert [trial.state.name for trial in only.study.trials] == ["FAIL"] * 3


def test_two_commands_do_not_go_on_with_one_search(make):
    first = make()[0]
    with first._lock(), pytest.raises(UserError, match="another command runs this search"):
        make()[0].run()
    assert make(trials=1)[0].run() == 0


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (["sweeper=optuna"], "nothing is searched"),
        (["sweeper=optuna", "seed=1,2", "run_id=a-${seed}"], "'run_id=a-${seed}': does not affect sweeper=optuna"),
        (["sweeper=optuna", "max_iterations=1,2"], "'max_iterations=1,2': cannot be searched"),
        (["sweeper=optuna", "ppo.gamma=interval(0.9,2)"], "ppo.gamma=2.0: must be in"),
        (["sweeper=optuna", "sweeper.trial=2", "seed=1,2"], "unknown key 'sweeper.trial': did you mean 'sweeper."),
        (["sweeper=optuna", "sweeper.trials=0", "seed=1,2"], "sweeper.trials=0: must be in [1, 100000]"),
        (["sweeper=optuna", "sweeper.direction=up", "seed=1,2"], "sweeper.direction=up: must be maximize or minimize"),
        (["sweeper=optun", "seed=1,2"], "sweeper=optun: must be one of basic, optuna; did you mean 'optuna'?"),
        (["sweeper=basic", "sweeper.trials=2", "seed=1,2"], "sweeper.trials=2: is for sweeper=optuna"),
        (["ppo.gamma=interval(0.9,0.99)"], "interval"),
    ],
)
def test_a_search_that_cannot_be_is_one_line(words, line, run, in_tmp):
    code, _, errors = run("train", "-m", "task=cartpole", *words)
    assert code == 2
    assert line in errors
    assert errors.count("\n") == 1
    assert not (in_tmp / "runs").exists()
