"""A run in less than float32 on the command line: train, resume, eval and export."""

import json

import pytest

from robot_rl.cli.main import main


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    return tmp_path_factory.mktemp("precision") / "runs"


@pytest.fixture(scope="module")
def run(root, tiny):
    """A tiny run in int8, resumed halfway."""
    words = ["train", "task=cartpole", *tiny.but("max_iterations=2"), "precision=int8", f"root={root}", "run_id=int8"]
    assert main(words) == 0
    assert main(["resume", "run=int8", "max_iterations=4", f"root={root}"]) == 0
    return root / "cartpole" / "int8"


def test_training_says_what_is_rounded(root, tiny, capfd):
    words = ["train", "task=cartpole", *tiny, "precision=int8", "precision.keep=[actor.1,critic]", f"root={root}"]
    assert main([*words, "run_id=kept"]) == 0
    out = capfd.readouterr().out
    assert "actor: 1 of 2 layers in int8" in out
    assert "actor.1 in fp32" in out
    rows = (root / "cartpole" / "kept" / "metrics.jsonl").read_text().splitlines()
    assert [json.loads(row)["precision/log_ratio_max"] for row in rows] == [0.0, 0.0]


@pytest.mark.long
def test_a_resumed_run_has_the_bits_of_one_that_was_not_ended(run, root, tiny):
    words = ["train", "task=cartpole", *tiny.but("max_iterations=4"), "precision=int8", f"root={root}"]
    assert main([*words, "run_id=whole"]) == 0
    names = {path.name for path in sorted((run / "checkpoints").glob("*"))[-1].iterdir()}
    assert any(name.endswith(".safetensors") for name in names)
    whole = sorted((root / "cartpole" / "whole" / "checkpoints").glob("*"))[-1]
    part = sorted((run / "checkpoints").glob("*"))[-1]
    for path in whole.glob("*.safetensors"):
        assert path.read_bytes() == (part / path.name).read_bytes(), path.name


def test_a_run_does_not_go_on_in_another_precision(run, root, capfd):
    assert main(["resume", "run=int8", "precision=bf16", "max_iterations=5", f"root={root}"]) == 2
    assert "precision=bf16: checkpoint 000004 was trained with int8; continue with that" in capfd.readouterr().err


def test_another_precision_of_a_run_is_refused_without_a_hint_that_leads_nowhere(run, root, tiny, capfd):
    words = ["train", "task=cartpole", *tiny.but("max_iterations=4"), "precision=bf16", f"root={root}", "run_id=int8"]
    assert main(words) == 2
    assert "precision.mode=bf16: run int8 has int8; choose another run_id=\n" in capfd.readouterr().err


@pytest.mark.long
def test_an_evaluation_compares_the_run_with_its_bundle(run, root, capfd):
    assert main(["eval", "run=int8", f"root={root}", "episodes=6", "seconds=1"]) == 0
    assert "torch and ONNX agree" in capfd.readouterr().out


@pytest.mark.long
def test_an_opset_is_given_for_an_older_runtime(run, root, tmp_path, capfd):
    out = tmp_path / "older"
    assert main(["export", "run=int8", f"root={root}", "opset=19", f"out={out}"]) == 0
    assert json.loads((out / "contract.json").read_text())["precision"]["opset"] == 19
    assert main(["export", "run=int8", f"root={root}", "opset=18", f"out={out}"]) == 2
    assert "opset=18: int8 needs 19 or newer; omit it" in capfd.readouterr().err


@pytest.mark.long
def test_quantization_after_training_needs_a_place_of_its_own(run, root, tmp_path, capfd):
    assert main(["export", "run=int8", "precision=fp8", f"root={root}"]) == 2
    assert "precision=fp8: the run has int8; give out= for a bundle that differs from its own" in capfd.readouterr().err
    wrong = tmp_path / "wrong"
    assert main(["export", "run=int8", "precision=int9", f"root={root}", f"out={wrong}"]) == 2
    assert "precision.mode=int9: must be one of fp32, bf16, fp8, int8; did" in capfd.readouterr().err
    assert not wrong.exists()
    assert main(["export", "run=int8", "precision=fp8", f"root={root}", f"out={tmp_path / 'fp8'}"]) == 0
    assert "precision fp8" in capfd.readouterr().out
    contract = json.loads((tmp_path / "fp8" / "contract.json").read_text())
    assert contract["precision"]["mode"] == "fp8"
    assert main(["export", "run=int8", f"root={root}"]) == 0
    assert "precision int8: 2 of 2 layers" in capfd.readouterr().out


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (
            ["train", "task=cartpole", "precision=int9"],
            "precision.mode=int9: must be one of fp32, bf16, fp8, int8; did",
        ),
        (["train", "task=cartpole", "learner=flashsac", "precision=int8"], "precision=int8: learner=flashsac has netw"),
        (["train", "task=cartpole", "precision=int8", "precision.keep=[actor.9]", "num_envs=2"], "'actor.9' is not a"),
        (["train", "task=cartpole", "precision.rollout=int7"], "rollout=int7: must be one of fp32, bf16, fp8, int8"),
    ],
)
def test_bad_words_are_one_line(words, message, in_tmp, capfd):
    assert main(words) == 2
    err = capfd.readouterr().err
    assert message in err
    assert "Traceback" not in err
