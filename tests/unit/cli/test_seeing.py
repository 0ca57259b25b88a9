"""Encoders and distributions from the command line to the bundle."""

import pytest

from robot_rl.learn.checkpoints.checkpoint import latest_checkpoint, load_checkpoint
from robot_rl.runs.run_dir import RunDir

SMALL = ("num_envs=2", "num_steps=4", "max_iterations=1", "actor.hidden=[8]", "critic.hidden=[8]", "num_threads=1")
BAD = [
    (
        ["actor.conv.groups=[actor.scna]"],
        "actor.conv.groups: 'actor.scna' is nothing that this network observes, did you",
    ),
    (
        ["critic.conv.groups=[actor.scan]"],
        "critic.conv.groups: 'actor.scan' is nothing that this network observes, did",
    ),
    (["actor.conv.groups=[actor.scan]", "actor.conv.shape=[10,17]"], "actor.conv.shape: [10, 17] fits none of"),
    (
        ["actor.conv.groups=[actor]", "actor.conv.shape=[11,17]"],
        "actor.conv.shape: [11, 17] has 187 components, 'actor'",
    ),
    (["actor.conv.groups=[actor.scan]", "actor.conv.kernels=[19]"], "actor.conv.kernels: 19 is larger than the input"),
    (["actor.conv.kernels=[3,3,3]"], "actor.conv.kernels=[3, 3, 3]: must be one value, or 2"),
    (["actor.distribution=gauss"], "actor.distribution=gauss: must be one of"),
    (["actor.bound=0"], "actor.bound=0.0: must be in"),
]


@pytest.mark.long
def test_a_height_scan_goes_through_an_encoder_and_into_the_bundle(run, in_tmp):
    words = ["actor.conv.groups=[actor.scan]", "critic.conv.groups=[critic.scan]", "critic.conv.shape=[11,17]"]
    assert run("train", "task=go2_rough", *SMALL, *words)[0] == 0
    tensors, meta = load_checkpoint(latest_checkpoint(RunDir.find("latest").path))
    assert meta["dims"]["terms"]["actor.scan"] == [47, 1, 11, 17]
    assert tensors["actor.encoders.encoders.0.layers.0.weight"].shape == (16, 1, 3, 3)
    assert meta["mirror"] is not None  # The preset's symmetric networks hold with an encoder in them.
    code, out, _ = run("export")
    assert code == 0
    assert "ONNX Runtime replays the golden sequence" in out


@pytest.mark.long
@pytest.mark.parametrize(("words", "line"), BAD)
def test_bad_settings_are_one_line(run, in_tmp, words, line):
    code, _, err = run("train", "task=go2_rough", *SMALL, *words)
    assert code == 2
    assert line in err
    assert len(err.strip().splitlines()) == 1
    assert not list(in_tmp.glob("runs/go2_rough/*"))


@pytest.mark.long
def test_bounded_actions_with_a_deviation_of_the_state_from_training_to_evaluation(run, in_tmp, tiny):
    words = ["actor.distribution=squashed", "actor.state_std=true", "actor.bound=0.5", "symmetry=none"]
    assert run("train", "task=cartpole", *tiny, *words)[0] == 0
    tensors, _ = load_checkpoint(latest_checkpoint(RunDir.find("latest").path))
    assert tensors["actor.body.layers.1.weight"].shape == (2, 8)
    code, out, _ = run("export")
    assert code == 0
    assert "ONNX Runtime replays the golden sequence" in out
