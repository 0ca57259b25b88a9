"""The comparison of a run's policy with itself in other precisions."""

import json

import pytest

from robot_rl.cli.main import main
from robot_rl.errors import UserError
from robot_rl.learn.precision.formats import FP32, get_format
from robot_rl.learn.precision.layer import QuantizedLayer
from robot_rl.runs.policies import find_policy


@pytest.fixture
def script():
    import precision_mismatch

    return precision_mismatch


@pytest.fixture(scope="module")
def root(tmp_path_factory, tiny):
    """The runs, one of them tiny and in int8."""
    root = tmp_path_factory.mktemp("mismatch") / "runs"
    assert main(["train", "task=cartpole", *tiny, "precision=int8", f"root={root}", "run_id=int8"]) == 0
    return root


@pytest.mark.long
def test_flows_and_layers_are_compared(script, root, tmp_path, capsys):
    out = tmp_path / "mismatch.json"
    words = ["run=int8", f"root={root}", "episodes=6", "seconds=1", "sensitivity=int8", f"out={out}"]
    assert script.main(words) == 0
    shown, found = capsys.readouterr().out, json.loads(out.read_text())
    assert [row["layer"] for row in found["layers"]] == ["actor.0", "actor.1"]
    flows = {row["name"]: row for row in found["flows"]}
    assert next(iter(flows)) == "int8 throughout"
    own = flows["int8 throughout"]
    assert own["log_ratio"] == 0.0
    assert own["kl_onnx"] < 1e-4
    mixed = flows["update bf16, rollouts int8"]
    assert mixed["log_ratio"] > 0.0
    for title in ("precision of each layer", "the same weights in other flows", "precision.keep=[actor."):
        assert title in shown
    layers = {row["layer"]: row for row in found["sensitivity"]}
    assert list(layers) == ["actor.0", "actor.1", "all"]
    one, whole = layers["actor.0"], layers["all"]
    assert one["metric"] == "upright"  # A score: what is larger by being better is worse by less.
    fp32 = whole["tracking"]["mean"] + whole["gap"]
    assert fp32 == pytest.approx(one["tracking"]["mean"] + one["gap"], abs=1e-5)


@pytest.mark.long
def test_episodes_that_are_too_short_for_the_metric_have_none(script, root):
    mismatch = script.Mismatch(find_policy("int8", "", str(root)), episodes=3, seconds=0.1)
    rows = mismatch.compare()
    assert all(row["return"]["mean"] is not None for row in rows)
    script.show_flows(rows)


def test_the_layers_show_the_step_of_rollouts(script):
    formats = {"acting": get_format("int8"), "rounds_output": False, "is_signed": True}
    (row,) = script.layer_rows(QuantizedLayer("actor.0", (4, 3), FP32, **formats))
    assert (row["precision"], row["in rollouts"], row["weight"]) == ("fp32", "int8", "4 x 3")
    assert float(row["step of inputs"]) > 0
    assert row["computed by"].startswith("float32; ")


def test_a_format_that_there_is_not_is_refused(script):
    with pytest.raises(UserError, match="^sensitivity=int9: must be one of bf16, fp8, int8"):
        script.main(["sensitivity=int9"])
