"""Settings of the learner that fit no environment or no checkpoint: named in full, before the training."""

import warnings

import pytest


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["symmetry=network", "actor.hidden=[33]"], "actor.hidden: 33 is odd, a symmetric network needs even widths"),
        (["symmetry=network", "critic.hidden=[33]"], "critic.hidden: 33 is odd"),
        (["reward_weights=[3]"], "reward_weights: [3.0] change nothing with one critic; add several_critics"),
        (["rnd.weight=1", "rnd.minibatches=17"], "rnd.minibatches: 17 is more than the 16 samples"),
    ],
)
def test_what_does_not_fit_is_one_line_and_nothing_written(run, in_tmp, tiny, words, message):
    code, _, err = run("train", "task=cartpole", *tiny.but(*words))
    assert (code, message in err.splitlines()[-1]) == (2, True), err
    assert list(in_tmp.iterdir()) == []


def test_another_network_than_the_checkpoints_is_named_by_its_setting(run, small_run):
    words = [small_run.name, f"root={small_run.parent.parent}", "max_iterations=4"]
    for setting in ("actor.memory.kind=gru", "critic.hidden=[10]", "symmetry=none"):
        code, _, err = run("resume", *words, setting)
        key, _, value = setting.partition("=")
        assert (code, f"{key}={value}: the checkpoint's network has" in err) == (2, True), err


def test_a_rollout_of_one_sample_has_no_deviation(run):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        code, _, err = run("bench", "learner", "num_envs=1", "num_steps=1", "repeats=2", "hidden=[8]")
    assert (code, err) == (2, "robot-rl: ppo.minibatches: 4 is more than the 1 samples\n")
