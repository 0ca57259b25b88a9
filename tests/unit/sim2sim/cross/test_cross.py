"""Evaluations of one policy in several engines become a table, a file and a plot."""

import json
from pathlib import Path

import pytest

from robot_rl.cli.main import main
from robot_rl.errors import UserError
from robot_rl.sim2sim.cross.table import merge, read_cell

METRICS = {
    "terrain_level": {"unit": "1", "meaning": "", "over": "mean", "after_s": 0.0, "better": ""},
    "lin_vel_error": {"unit": "m/s", "meaning": "", "over": "mean", "after_s": 1.0, "better": "smaller"},
    "yaw_vel_error": {"unit": "rad/s", "meaning": "", "over": "mean", "after_s": 1.0, "better": "smaller"},
    "failure_rate": {"unit": "1", "meaning": "", "better": "smaller"},
    "return": {"unit": "1", "meaning": "", "better": "larger"},
}
WITHOUT_OWN = {name: METRICS[name] for name in ("failure_rate", "return")}


def evaluation(engine, error=0.1, failed=0.0, **changes):
    """What robot-rl eval writes."""
    figures = {
        "lin_vel_error": {"mean": error, "std": 0.04},
        "yaw_vel_error": {"mean": 0.07, "std": 0.02},
        "failure_rate": {"mean": failed, "std": 0.0},
    }
    result = {
        "onnx": figures,
        "metrics": METRICS,
        "episodes": 100,
        "seconds": 10.0,
        "task": "go2_flat",
        "policy": "run-1",
    }
    return result | {"engine": engine, "trained_on": "mujoco"} | changes


@pytest.fixture
def write(tmp_path, monkeypatch):
    """Writes an evaluation, returns the file's name."""
    monkeypatch.chdir(tmp_path)

    def call(name, content):
        (tmp_path / name).write_text(content if isinstance(content, str) else json.dumps(content))
        return name

    return call


def cells(write, *contents):
    return [read_cell(Path(write(f"{k}.json", content))) for k, content in enumerate(contents)]


def test_losses_are_against_the_engine_it_learned_in(write):
    near = evaluation("mujoco_warp", 0.11)
    far = evaluation("isaac", 0.12, failed=0.05)
    table = merge(cells(write, far, near, evaluation("mujoco", 0.1)))
    assert table.engines[0] == "mujoco"
    losses = {engine: table.losses(table.cells["run-1", engine]) for engine in table.engines}
    assert losses["mujoco"] is None
    assert losses["mujoco_warp"] == {"metric": pytest.approx(0.1), "survival": 0.0, "within": True}
    assert losses["isaac"] == {"metric": pytest.approx(0.2), "survival": pytest.approx(0.05), "within": False}


@pytest.mark.parametrize(
    ("error", "failed", "within"), [(0.1149, 0.03, True), (0.1151, 0.0, False), (0.1, 0.031, False), (0.05, 0.0, True)]
)
def test_the_bounds(write, error, failed, within):
    table = merge(cells(write, evaluation("mujoco"), evaluation("isaac", error, failed)))
    assert table.losses(table.cells["run-1", "isaac"])["within"] is within


def test_a_policy_without_its_own_engine_has_no_losses(write):
    table = merge(cells(write, evaluation("isaac")))
    assert table.losses(table.cells["run-1", "isaac"]) is None


def test_a_task_without_metrics_is_judged_by_its_return(write):
    def with_return(engine, total):
        figures = {"failure_rate": {"mean": 0.5, "std": 0.5}, "return": {"mean": total, "std": 1.0}}
        return evaluation(engine, onnx=figures, metrics=WITHOUT_OWN)

    table = merge(cells(write, with_return("mujoco", 4.0), with_return("isaac", 3.6), with_return("mujoco_warp", 3.0)))
    near, far = (table.losses(table.cells["run-1", engine]) for engine in ("isaac", "mujoco_warp"))
    assert near == {"metric": pytest.approx(0.1), "survival": 0.0, "within": True}
    assert far == {"metric": pytest.approx(0.25), "survival": 0.0, "within": False}


def test_a_metric_of_which_larger_values_are_better(write):
    metrics = {"reached": {"unit": "1", "meaning": "", "over": "end", "after_s": 0.0, "better": "larger"}}

    def reached(engine, share):
        figures = {"reached": {"mean": share, "std": 0.0}, "failure_rate": {"mean": 0.0, "std": 0.0}}
        return evaluation(engine, onnx=figures, metrics=metrics)

    table = merge(cells(write, reached("mujoco", 0.8), reached("isaac", 0.6)))
    assert table.losses(table.cells["run-1", "isaac"])["metric"] == pytest.approx(0.25)


def test_the_plot_of_a_task_without_metrics(write, capsys):
    figures = {"failure_rate": {"mean": 0.5, "std": 0.5}, "return": {"mean": 3.0, "std": 1.0}}
    words = [
        write(f"{engine}.json", evaluation(engine, onnx=figures, metrics=WITHOUT_OWN)) for engine in ("mujoco", "isaac")
    ]
    assert main(["cross", *words, "out=cross.json"]) == 0
    assert "return, larger is better" in capsys.readouterr().out
    assert Path("cross.png").stat().st_size > 1000


def test_the_command_writes_table_file_and_plot(write, capsys):
    words = [
        write(f"{engine}.json", evaluation(engine, 0.1 + 0.03 * k)) for k, engine in enumerate(("mujoco", "isaac"))
    ]
    assert main(["cross", *words, "out=cross.json"]) == 0
    out = capsys.readouterr().out
    assert "0.13" in out
    assert "lin vel error [m/s], smaller is better" in out
    assert "+30%" in out
    assert "!" in out
    table = json.loads(Path("cross.json").read_text())
    assert table["engines"] == ["mujoco", "isaac"]
    assert [cell["losses"] for cell in table["cells"]][1]["within"] is False
    from PIL import Image

    with Image.open("cross.png") as image:
        assert image.size[0] == 1100
        colors = {color for _, color in image.convert("RGB").getcolors(2**20)}
    assert {(11, 98, 196), (209, 102, 10)} <= colors  # home, and beyond the bounds


def test_every_pair_of_two_policies(write, capsys):
    words = []
    for policy, home in (("a", "mujoco"), ("b", "isaac")):
        for engine in ("mujoco", "isaac"):
            content = evaluation(engine, policy=policy, trained_on=home)
            words.append(write(f"{policy}-{engine}.json", content))
    assert main(["cross", *words, "out=cross.json"]) == 0
    table = json.loads(Path("cross.json").read_text())
    assert table["policies"] == ["a", "b"]
    assert sum(cell["losses"] is None for cell in table["cells"]) == 2


def test_where_a_bundle_was_trained_can_be_given(write, capsys):
    words = [write(f"{engine}.json", evaluation(engine, trained_on=None)) for engine in ("mujoco", "isaac")]
    assert main(["cross", *words, "home=isaac", "out=cross.json"]) == 0
    (cell,) = [cell for cell in json.loads(Path("cross.json").read_text())["cells"] if cell["losses"]]
    assert cell["engine"] == "mujoco"


@pytest.mark.parametrize(
    ("content", "line"),
    [
        ("{", "one.json: damaged, line 1 is not JSON"),
        ("[]", "one.json: is no evaluation"),
        ({"seconds": 1.0}, "one.json: is no evaluation"),
        (evaluation(None), "one.json: does not say its engine"),
        (evaluation("isaac", onnx={}), "one.json: damaged, 'failure_rate' is missing"),
        (evaluation("isaac", metrics=5), "one.json: damaged, "),
        (evaluation("isaac", metrics={"return": 5}), "one.json: damaged, "),
        (evaluation("isaac", onnx={"failure_rate": None}), "one.json: all its episodes were quarantined"),
        (
            {k: v for k, v in evaluation("isaac").items() if k != "metrics"},
            "one.json: does not say what its metrics are",
        ),
        (evaluation("isaac", onnx=5), "one.json: damaged, 'onnx' holds no figures"),
        (evaluation(["isaac"]), "one.json: damaged, engine=['isaac'] is no word"),
        (evaluation("isaac", policy={"a": 1}), "one.json: damaged, policy={'a': 1} is no word"),
        (evaluation("isaac", trained_on=5), "one.json: damaged, trained_on=5 is no word"),
        (evaluation(None, task="isaac/X"), "one.json: isaac/X has physics of its own; cross compares our"),
    ],
)
def test_a_damaged_file_is_one_line(write, capsys, content, line):
    assert main(["cross", write("one.json", content)]) == 2
    assert line in capsys.readouterr().err


def test_what_does_not_go_together_is_refused(write):
    with pytest.raises(UserError, match="both are run-1 in isaac"):
        merge(cells(write, evaluation("isaac"), evaluation("isaac")))
    with pytest.raises(UserError, match="is of task cartpole"):
        merge(cells(write, evaluation("isaac"), evaluation("mujoco", task="cartpole")))
    with pytest.raises(UserError, match="nothing to merge"):
        merge([])


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (["nowhere.json"], "nowhere.json: cannot be read (no such file"),
        (["{one}", "out=cross.txt"], "out=cross.txt: must end in .json"),
        (["{one}", "out=a/cross.json"], "out=a/cross.json: there is no folder a"),
        ([], "nothing to merge"),
    ],
)
def test_bad_words_are_one_line(write, capsys, words, line):
    one = write("one.json", evaluation("isaac"))
    assert main(["cross", *(word.replace("{one}", one) for word in words)]) == 2
    assert line in capsys.readouterr().err
