"""Gates: the figure that a path names, bounds, and the command that checks them."""

import json
import math

import pytest

from robot_rl.cli.main import main
from robot_rl.cluster.flow.dag import Gate
from robot_rl.cluster.flow.gates import find_figure, judge, read_word
from robot_rl.errors import UserError

CONTENT = {
    "onnx": {"ended/low": {"mean": 0.25}, "arm.success": {"mean": 0.9}},
    "better": True,
    "bad": None,
    "n": math.nan,
}


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("onnx.ended/low.mean", 0.25),
        ("onnx.arm.success.mean", 0.9),
        ("better", True),
        ("onnx.nothing.mean", None),
        ("onnx.ended/low.mean.more", None),
    ],
)
def test_a_path_finds_a_figure_also_through_keys_with_dots(path, value):
    assert find_figure(CONTENT, path) == value


@pytest.mark.parametrize(
    ("op", "bound", "holds"), [("<=", 0.25, True), ("<=", 0.24, False), (">=", 0.25, True), (">=", 0.26, False)]
)
def test_a_bound_itself_is_within(op, bound, holds):
    assert judge(Gate(name="g", path="onnx.ended/low.mean", op=op, bound=bound), CONTENT).holds is holds


@pytest.mark.parametrize("path", ["missing", "bad", "n", "better", "onnx"])
def test_what_is_no_finite_number_fails(path):
    verdict = judge(Gate(name="g", path=path, bound=1e9), CONTENT)
    assert not verdict.holds
    assert verdict.value is None


def test_a_flag_of_the_file_can_excuse_a_figure():
    gate = Gate(name="g", path="onnx.ended/low.mean", bound=0.1, unless="better")
    assert judge(gate, CONTENT).holds
    assert not judge(gate, {**CONTENT, "better": 1}).holds


def test_a_gate_survives_the_command_line():
    gate = Gate(name="error", path="onnx.ended/low.mean", bound=0.1, op=">=", unless="parity.x.better")
    word = gate.word("evaluate")
    assert word == "evaluate.error:onnx.ended/low.mean>=0.1|parity.x.better"
    assert read_word(word) == Gate(name="evaluate.error", path=gate.path, bound=0.1, op=">=", unless=gate.unless)


@pytest.mark.parametrize("word", ["a", "a:b", "a:b<1", "a:b<=x", "a:b<=nan", ":b<=1", "a:b<=inf"])
def test_a_word_that_is_no_gate_is_refused(word):
    with pytest.raises(UserError, match="gate '"):
        read_word(word)


def test_the_command_names_gate_figure_value_and_bound(tmp_path, capsys):
    file = tmp_path / "eval.json"
    file.write_text(json.dumps({"onnx": {"e": {"mean": 0.31}}}))
    assert main(["flow", "gate", str(file), "evaluate.error:onnx.e.mean<=0.2", "evaluate.rate:onnx.e.mean>=0.2"]) == 1
    out, err = capsys.readouterr()
    assert "gate evaluate.error FAILED: onnx.e.mean is 0.31, must be at most 0.2" in err
    assert err.count("\n") == 1
    assert "gate evaluate.rate passed" in out
    assert main(["flow", "gate", str(file), "evaluate.error:onnx.e.mean<=0.4"]) == 0


def test_the_command_refuses_a_file_that_there_is_not(tmp_path, capsys):
    assert main(["flow", "gate", str(tmp_path / "no.json"), "a:b<=1"]) == 2
    assert "does not exist" in capsys.readouterr().err
