"""Ours compared with the rivals in Gymnasium's environments: what is counted, what is compared, what is drawn."""

import json
import xml.etree.ElementTree as ElementTree
from types import SimpleNamespace

import gymnasium_chart
import gymnasium_v5
import pytest
import torch
from rivals.episodes import EpisodeLog

from robot_rl.errors import UserError

ENV = "HalfCheetah-v5"


def training(rival, value, seed=1, *, seconds=100.0, load="alone", env=ENV, evaluated=None):
    curve = {"steps": [10, 20, 30], "seconds": [1.0, 2.0, seconds], "return": [None, value / 2, value]}
    return {
        "env": env,
        "rival": rival,
        "seed": seed,
        "steps": 30,
        "return": value,
        "train_s": seconds,
        "load": load,
        "machine": {"cpu": "a CPU"},
        "evaluation": [value if evaluated is None else evaluated] * 2,
        "curve": curve,
    }


class Counting:
    """Three worlds with rewards 1, 2, 3: the first ends after 4 steps, the others only run out of time."""

    num_envs, max_episode_length = 3, 5

    def __init__(self):
        self.age = torch.tensor([0, 0, 2])
        self.valid = torch.ones(3, dtype=torch.bool)

    def step(self, actions):
        self.age += 1
        time_outs = self.age >= self.max_episode_length
        done = time_outs | (self.age >= torch.tensor([4, 99, 99]))
        self.age[done] = 0
        return None, torch.tensor([1.0, 2.0, 3.0]), done, {"time_outs": time_outs, "valid": self.valid}


def test_only_whole_episodes_are_counted():
    env, log, found = Counting(), EpisodeLog(30, 30), []
    log.add = lambda value, length: found.append((float(value), int(length)))
    gymnasium_v5.count_episodes(env, log)
    log.begin()
    for _ in range(5):
        env.step(None)
    # The third world's first episode began at age 2: it was not a whole one.
    assert found == [(4.0, 4), (10.0, 5)]
    env.valid[2] = False
    for _ in range(5):
        env.step(None)
    # The third world broke in the meantime.
    assert found == [(4.0, 4), (10.0, 5), (4.0, 4), (10.0, 5)]
    assert log.curve["steps"] == list(range(1, 31))


def test_ours_has_to_reach_the_better_rival_in_its_share_of_time():
    rivals = [training("cleanrl", v, s, seconds=100.0) for s, v in ((1, 900.0), (2, 1000.0), (3, 1100.0))]
    rivals += [training("sb3", v, s, seconds=20.0) for s, v in ((1, 400.0), (2, 500.0), (3, 600.0))]
    row = gymnasium_v5.compare(ENV, [training("ours", 910.0, seconds=35.0)], rivals)
    assert (row["better"], row["ratio"], row["time_ratio"]) == ("cleanrl", 0.91, 0.35)
    assert (row["reached"], row["quick"], row["met"], row["same_cpu"]) == (True, True, True, True)
    assert row["cleanrl"]["spread"] == 100.0
    row = gymnasium_v5.compare(ENV, [training("ours", 899.0, seconds=35.0)], rivals)
    assert (row["reached"], row["quick"], row["met"]) == (False, True, False)
    row = gymnasium_v5.compare(ENV, [training("ours", 2000.0, seconds=36.0, evaluated=10.0)], rivals)
    assert (row["reached"], row["quick"], row["met"]) == (True, False, False)
    assert not row["reached_evaluation"]


def test_time_is_that_of_trainings_that_ran_alone():
    runs = [training("sb3", 1.0, 1, seconds=50.0), training("sb3", 1.0, 2, seconds=90.0, load="pair")]
    assert gymnasium_v5.summary(runs)["train_s"] == 50.0
    assert gymnasium_v5.summary(runs[1:])["train_s"] == 90.0
    assert not gymnasium_v5.summary(runs[1:])["timed_alone"]
    assert gymnasium_v5.summary([]) is None


def test_time_may_be_that_of_shorter_trainings_that_ran_alone():
    beside = [training("sb3", 1.0, seed, seconds=90.0, load="pair") for seed in (1, 2)]
    short = training("sb3", 0.1, seconds=5.0) | {"steps": beside[0]["steps"] // 10}
    found = gymnasium_v5.summary(beside, [short])
    assert (found["train_s"], found["timed_alone"], found["timed_steps"]) == (50.0, True, short["steps"])
    other = [short | {"rival": "cleanrl"}, short | {"env": "Ant-v5"}]
    row = gymnasium_v5.compare(ENV, [training("ours", 1.0, seconds=15.0)], beside, [*other, short])
    assert (row["sb3"]["train_s"], row["time_ratio"]) == (50.0, 0.3)
    assert gymnasium_v5.summary([training("sb3", 1.0, seconds=70.0)], [short])["train_s"] == 70.0


def test_rivals_of_the_same_run_go_before_those_of_the_file():
    ours, committed = [training("ours", 10.0)], [training("sb3", 1.0), training("sb3", 5.0, env="Ant-v5")]
    result = gymnasium_v5.make_table_result([ENV, "Ant-v5"], ours, committed, [training("sb3", 8.0)])
    assert json.loads(json.dumps(result)) == result
    first, second = result["table"]
    assert (first["live"], first["sb3"]["return"], first["met"]) == (True, 8.0, False)
    assert (second["live"], second["ours"], second["met"]) == (False, None, None)
    assert json.loads(gymnasium_v5.dump(result)) == result
    assert sum(line.startswith('{"env"') for line in gymnasium_v5.dump(result).splitlines()) == 2


def test_the_table_is_shown(capsys):
    ours = [training("ours", 910.0, seconds=30.0)]
    rivals = [training("cleanrl", 900.0), training("sb3", 1000.0)]
    gymnasium_v5.show(gymnasium_v5.make_table_result([ENV, "Ant-v5"], ours, rivals, []))
    shown = capsys.readouterr().out
    for word in (
        "HalfCheetah-v5",
        "910",
        "0.91",
        "0.30",
        "better",
        "Ant-v5: its rivals were not run yet",
        "CleanRL's settings, our program",
    ):
        assert word in shown


def test_the_clock_of_a_training_with_others_is_scaled_to_one_alone():
    busy = training("sb3", 10.0, seconds=400.0, load="pair")
    assert gymnasium_chart.curves([busy], 100.0)[1].tolist() == [0.25, 0.5, 100.0]
    assert gymnasium_chart.curves([training("sb3", 10.0, seconds=90.0)], 100.0)[1].tolist() == [1.0, 2.0, 90.0]


def test_the_curves_are_drawn():
    runs = [training("ours", 910.0, seed) for seed in (1, 2)] + [training("sb3", -50.0, env="Ant-v5")]
    steps, seconds, mean, lowest, highest = gymnasium_chart.curves([training("ours", 10.0), training("ours", 20.0, 2)])
    assert steps.tolist() == [10.0, 20.0, 30.0]
    assert seconds.tolist() == [1.0, 2.0, 100.0]
    assert (mean[2], lowest[2], highest[2]) == (15.0, 10.0, 20.0)
    drawing = ElementTree.fromstring(gymnasium_chart.draw([{"env": ENV}, {"env": "Ant-v5"}], runs))
    name = "{http://www.w3.org/2000/svg}"
    lines = [line for line in drawing.iter(f"{name}path") if line.get("class") == "line"]
    assert [line.get("stroke") for line in lines] == [gymnasium_chart.COLORS[k] for k in ("ours", "sb3") * 2]
    # Two finite points of three.
    assert all(line.get("d").count("L") == 1 for line in lines)
    texts = [text.text for text in drawing.iter(f"{name}text")]
    assert {ENV, "Ant-v5", "M steps", "min", "stable-baselines3, default settings"} <= set(texts)


def test_trainings_that_are_there_are_kept(tmp_path):
    out = tmp_path / "out.json"
    options = gymnasium_v5.Options(out=str(out), rival_runs=str(tmp_path / "none"))
    board = gymnasium_v5.Board(options, [ENV])
    run = training("ours", 5.0) | {"settings": {"num_envs": 2}}
    board.add(run)
    assert out.with_suffix(".svg").is_file()
    again = gymnasium_v5.Board(
        gymnasium_v5.Options(out=str(out), rival_runs=str(tmp_path / "none"), resume=True), [ENV]
    )
    assert again.known(ENV, "ours", 1, {"steps": 30, "settings": {"num_envs": 2}}) == run
    assert again.known(ENV, "ours", 1, {"steps": 30, "settings": {"num_envs": 4}}) is None
    assert again.known(ENV, "ours", 2, {"steps": 30}) is None
    out.write_text("{}")
    with pytest.raises(UserError, match="damaged"):
        gymnasium_v5.Board(gymnasium_v5.Options(out=str(out), resume=True), [ENV])


@pytest.mark.parametrize(
    "harm",
    [
        {"return": "abc"},
        {"evaluation": []},
        {"machine": {}},
        {"train_s": float("nan")},
        {"curve": {"steps": [1], "seconds": [1.0], "return": []}},
    ],
)
def test_a_rivals_file_without_its_figures_is_refused_before_training(tmp_path, harm):
    file = tmp_path / "rivals.json"
    file.write_text(json.dumps({"runs": [training("sb3", 5.0), training("sb3", 5.0, 2) | harm]}))
    with pytest.raises(UserError, match="rivals.json: damaged .HalfCheetah-v5:sb3:2"):
        gymnasium_v5.Board(gymnasium_v5.Options(rival_runs=str(file)), [ENV])


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (["envs=HalfCheetah-v4"], "no 'HalfCheetah-v4'; did you mean 'HalfCheetah-v5'"),
        (["envs=Ant-v5,Ant-v5"], "envs=Ant-v5,Ant-v5: one is named twice"),
        (["seeds=1,1"], "seeds=1,1: must be different whole numbers"),
        (["steps=7"], "steps=7: must be at least 2048"),
        (["rival=yes"], "rival=yes: must be committed or live"),
        (["rival=live", "rival_python=/not/there"], "rival_python=/not/there: no such interpreter"),
        (["resume=true"], "resume=true: needs out="),
        (["ppo.learning=1"], "ppo.learning"),
        (["root=x"], "unknown key 'root'"),
        (["env=Ant-v5"], "unknown key 'env': did you mean 'envs'"),
    ],
)
def test_bad_input_is_one_line(words, line):
    with pytest.raises(UserError, match=line):
        gymnasium_v5.bench_gymnasium(words)


def test_the_policy_acts_on_gymnasiums_observation():
    class Actor(torch.nn.Linear):
        def mean(self, obs):
            return self(obs)

    actor = Actor(3, 2)
    action = gymnasium_v5.make_act(actor)(torch.arange(3, dtype=torch.float64).numpy())
    assert action == pytest.approx(actor(torch.arange(3.0)).detach().numpy())


def test_too_few_steps_are_refused():
    env = SimpleNamespace(num_envs=8)
    with pytest.raises(UserError, match="steps=100: must be at least one rollout, 800 steps"):
        gymnasium_v5.train_ours(lambda: env, SimpleNamespace(num_steps=100), ENV, seed=1, steps=100)
