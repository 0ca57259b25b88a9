"""run.yaml compared with the settings that a checkpoint holds."""

import pytest
import torch
import yaml

from robot_rl.errors import UserError
from robot_rl.learn.checkpoints.checkpoint import save_checkpoint
from robot_rl.runs.agreement import changes, check_settings
from robot_rl.runs.run_dir import RunDir

CONFIG = {"task": "cartpole", "seed": 1, "ppo": {"gamma": 0.99, "lam": 0.95}, "hidden": [8, 8], "root": "runs"}


@pytest.fixture
def run_dir(tmp_path):
    run_dir = RunDir.create(tmp_path, "cartpole", 1, "mine")
    run_dir.write_config(CONFIG, [])
    save(run_dir, 10, CONFIG)
    return run_dir


def save(run_dir, iteration, settings):
    meta = {"iteration": iteration, "settings": settings}
    save_checkpoint(run_dir.checkpoints / f"{iteration:06d}", {"w": torch.zeros(1)}, meta)


def check(run_dir):
    check_settings(run_dir, run_dir.read_config())


def resume(run_dir, iteration, **ppo):
    """Note that the run went on from a checkpoint, with other settings of the learner."""
    before = run_dir.read_config()["config"]
    now = {**before, "ppo": {**before["ppo"], **ppo}}
    run_dir.note_resumed(now, [], iteration, changes=changes(before, now))
    return now


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("gamma: 0.99", "gamma: 0.19", r"ppo.gamma=0.19: checkpoint 000010 was trained with 0.99; put that back, and"),
        ("seed: 1", "seed: 2", r"seed=2: checkpoint 000010 was trained with 1; put that back$"),
        ("    lam: 0.95\n", "", r"lacks ppo.lam, checkpoint 000010 was trained with 0.95; put the line back"),
        ("    lam: 0.95\n", "    lam: 0.95\n    mu: 1\n", r"ppo.mu=1: checkpoint 000010 was trained without it"),
        ("  - 8\n  - 8\n", "  - 8\n  - 9\n", r"hidden=\[8, 9\]: checkpoint 000010 was trained with \[8, 8\]"),
        ("seed: 1", "seed: 1\n  seed: 1", "the key 'seed' is there twice, again in line"),
        ("root: runs", "root: elsewhere", None),
    ],
)
def test_the_first_difference_is_named(run_dir, old, new, message):
    text = run_dir.config_file.read_text()
    assert old in text
    run_dir.config_file.write_text(text.replace(old, new))
    if message is None:
        check(run_dir)
    else:
        with pytest.raises(UserError, match=message):
            check(run_dir)


def test_what_resume_changed_is_no_difference(run_dir):
    resume(run_dir, 10, gamma=0.9)
    check(run_dir)
    now = resume(run_dir, 10, lam=0.8)  # Killed before its next checkpoint.
    check(run_dir)
    save(run_dir, 20, now)
    check(run_dir)
    text = run_dir.config_file.read_text().replace("gamma: 0.9\n", "gamma: 0.7\n")
    run_dir.config_file.write_text(text)
    with pytest.raises(UserError, match="ppo.gamma=0.7: checkpoint 000020 was trained with 0.9"):
        check(run_dir)


def test_after_going_back_to_an_earlier_checkpoint(run_dir):
    """What was changed behind it no longer counts, although it was noted at a later iteration."""
    save(run_dir, 20, resume(run_dir, 10, gamma=0.9))
    resume(run_dir, 20, gamma=0.8)
    (run_dir.checkpoints / "000020" / "meta.json").write_text("damaged")
    check(run_dir)
    now = resume(run_dir, 10, gamma=0.7)
    check(run_dir)
    save(run_dir, 15, now)
    check(run_dir)


def test_a_setting_that_is_gone(run_dir):
    before = run_dir.read_config()["config"]
    now = {key: value for key, value in before.items() if key != "hidden"}
    assert changes(before, now) == {"changed": {}, "gone": ["hidden"]}
    run_dir.note_resumed(now, [], 10, changes=changes(before, now))
    check(run_dir)


def test_changes_are_kept_when_the_times_that_it_went_on_are_too_many(run_dir, monkeypatch):
    monkeypatch.setattr("robot_rl.runs.run_dir.MAX_RESUMED", 2)
    for k in range(5):
        resume(run_dir, 10, **({"gamma": 0.5 + k / 10} if k < 2 else {}))
    assert len(run_dir.read_config()["resumed"]) == 2
    check(run_dir)


def test_runs_of_earlier_versions_are_not_compared(run_dir):
    config = {**CONFIG, "seed": 5}
    run_dir.note_resumed(config, [], 10)  # Does not contain what it changed.
    check(run_dir)
    for settings in ({}, None):
        save(run_dir, 20, settings)
        run_dir.config_file.write_text(yaml.safe_dump({"config": {"seed": 7}}))
        check(run_dir)


def test_a_run_that_has_not_begun_needs_the_end_of_its_settings(tmp_path):
    run_dir = RunDir.create(tmp_path, "cartpole", 1, "mine")
    run_dir.write_config(CONFIG, [])
    whole = run_dir.config_file.read_text()
    run_dir.config_file.write_text(whole[: whole.index("config_sha256")])
    with pytest.raises(UserError, match=r"run\.yaml: lacks config_sha256, its end is missing; begin another run"):
        check(run_dir)


@pytest.mark.parametrize("resumed", ["3", "[3]", "[{iteration: x}]", "[{iteration: 3, changed: 4}]"])
def test_damaged_notes_of_going_on(run_dir, resumed):
    run_dir.config_file.write_text(f"{run_dir.config_file.read_text()}resumed: {resumed}\n")
    with pytest.raises(UserError, match="damaged, its 'resumed' is not a list"):
        run_dir.read_config()


def test_commands_refuse_it_and_a_changed_run_goes_on(run, in_tmp, tiny):
    words = ("task=cartpole", *tiny, "run_id=mine")
    assert run("train", *words)[0] == 0
    code, _, err = run("resume", "mine", "max_iterations=3", "ppo.gamma=0.9")
    assert code == 0, err
    mine = RunDir.find("mine")
    assert mine.read_config()["resumed"][0]["changed"]["ppo.gamma"] == 0.9
    mine.config_file.write_text(mine.config_file.read_text().replace("gamma: 0.9\n", "gamma: 0.8\n"))
    again = [word for word in words if not word.startswith("max_iterations")]
    goes_on = (("resume", "mine", "max_iterations=4"), ("train", *again, "ppo.gamma=0.8"))
    for command in (("eval", "run=mine"), ("report", "run=mine"), *goes_on):
        code, _, err = run(*command)
        assert (code, len(err.splitlines())) == (2, 1)
        assert "run.yaml: ppo.gamma=0.8: checkpoint 000003 was trained with 0.9; put that back" in err


def test_what_run_yaml_says_besides_the_settings_is_not_changed_either(run_dir):
    text = run_dir.config_file.read_text()
    record = run_dir.read_config() | {"launcher": {"name": "torchrun", "nodes": 2}}
    run_dir.config_file.write_text(yaml.safe_dump(record))
    with pytest.raises(UserError, match=r"run\.yaml: was changed after it was written"):
        check(run_dir)
    run_dir.config_file.write_text(text)
    run_dir.add_to_config({"launcher": {"name": "torchrun", "nodes": 2}})
    check(run_dir)
    del record["record_sha256"]  # An earlier version wrote none.
    run_dir.config_file.write_text(yaml.safe_dump(record))
    check(run_dir)


@pytest.mark.parametrize("command", [5, "train", {"a": 1}])
def test_a_command_that_is_no_list_is_damage(run_dir, command):
    run_dir.config_file.write_text(yaml.safe_dump({"config": CONFIG, "command": command}))
    with pytest.raises(UserError, match="damaged, its 'command' is not a list of words"):
        run_dir.read_config()
