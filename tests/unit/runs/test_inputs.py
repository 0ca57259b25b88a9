"""learner=distill and reference.run on the command line: the policy is found, and sees what it was trained with."""

import shutil

import pytest
import yaml

from robot_rl.learn.checkpoints.checkpoint import latest_checkpoint, load_checkpoint
from robot_rl.runs.inputs import resolve_inputs
from robot_rl.runs.run_dir import RunDir
from robot_rl.runs.settings import default_tree, resolve
from robot_rl.settings.tree import override


def settings(**changes):
    changes = {"learner": "distill", "device": "cpu"} | changes
    return resolve(override(default_tree("cartpole", "cpu", changes["learner"]), changes))


@pytest.mark.long
def test_a_student_that_sees_less_is_taught_by_the_whole_actor(run, in_tmp, tiny, small_run):
    blind = ["~observations.actor.terms.joint_vel", "learner=distill", f"teacher.run={small_run}"]
    code, _, err = run("train", "task=cartpole", *tiny, *blind)
    assert code == 0, err
    student = RunDir.find("latest")
    meta = load_checkpoint(latest_checkpoint(student.path))[1]
    teacher = load_checkpoint(latest_checkpoint(small_run))[1]
    assert meta["dims"]["actor"] < teacher["dims"]["actor"]
    assert meta["learner"]["teacher"]["groups"] == ["teacher_actor"]
    assert meta["auxiliaries"]["teacher"]["checkpoint"] == str(latest_checkpoint(small_run).resolve())
    record = yaml.safe_load((student.path / "run.yaml").read_text())["config"]
    assert record["teacher"]["run"] == str(latest_checkpoint(small_run).resolve())
    assert "teacher_actor" not in record["observations"]  # The student's own task, which eval and export build.
    code, _, err = run("resume", student.run_id, "max_iterations=3")
    assert code == 0, err
    code, _, err = run("train", "task=cartpole", *tiny, blind[0], f"init_from={student.run_id}")
    assert code == 0, err


@pytest.mark.long
def test_a_run_is_found_by_its_id_and_stays_the_one_that_was_found(run, in_tmp, tiny):
    assert run("train", "task=cartpole", *tiny)[0] == 0
    teacher = RunDir.find("latest")
    code, _, err = run("train", "task=cartpole", *tiny, "learner=distill", "teacher.run=latest")
    assert code == 0, err
    student = RunDir.find("latest")
    assert student.run_id != teacher.run_id
    assert run("resume", teacher.run_id, "max_iterations=3")[0] == 0  # A newer checkpoint of the teacher's run.
    code, _, err = run("resume", student.run_id, "max_iterations=3")
    assert code == 0, err
    shutil.rmtree(teacher.path)
    code, _, err = run("resume", student.run_id, "max_iterations=4")
    assert code == 2
    assert err.startswith("robot-rl: teacher.run=")
    assert len(err.splitlines()) == 1


def test_equal_groups_are_shared(small_run):
    cfg = resolve_inputs(settings(**{"teacher.run": str(small_run)}))
    assert cfg.learner.teacher.groups == ("actor",)
    assert set(cfg.task.observations) == {"actor", "critic"}
    cfg = resolve_inputs(settings(**{"teacher.run": str(small_run), "observations.actor.terms.joint_vel.noise": 0.3}))
    assert cfg.learner.teacher.groups == ("teacher_actor",)
    assert cfg.task.observations["teacher_actor"].terms["joint_vel"].noise == 0.0
    assert cfg.task.observations["actor"].terms["joint_vel"].noise == 0.3


def test_groups_that_the_user_names_are_taken(small_run):
    cfg = resolve_inputs(settings(**{"teacher.run": str(small_run), "teacher.groups": ["critic"]}))
    assert cfg.learner.teacher.groups == ("critic",)
    assert set(cfg.task.observations) == {"actor", "critic"}


def test_a_reference_is_found_alike(small_run):
    cfg = resolve_inputs(settings(**{"learner": "ppo", "reference.run": str(small_run)}))
    assert cfg.learner.reference.run == str(latest_checkpoint(small_run).resolve())
    assert cfg.learner.reference.groups == ("actor",)


@pytest.mark.long
@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["learner=distill"], "teacher.run: '' names no policy, must be a run's directory or one of its checkpoints"),
        (["learner=distill", "teacher.run=nowhere"], "teacher.run=nowhere: no"),
        (["teacher.run={run}"], "is for learner=distill, this is learner=ppo"),
        (["reference.run=nowhere"], "reference.run=nowhere: no"),
        (
            ["learner=distill", "teacher.run={run}", "actions.scale=3"],
            "has actions.scale=1.0, must be 3.0 as in cartpole",
        ),
        (
            ["learner=distill", "teacher.run={run}", "teacher.groups=[actr]"],
            "teacher.groups: the environment has no group",
        ),
        (["learner=distill", "teacher.run={run}", "teacher.mix=2"], "teacher.mix=2.0: must be in"),
        (["learner=rsl_rl", "reference.run={run}"], "reference.run: the rsl_rl learner does not have it here"),
    ],
)
def test_what_cannot_be_is_one_line(run, in_tmp, tiny, small_run, words, message):
    code, out, err = run("train", "task=cartpole", *tiny, *(word.format(run=small_run) for word in words))
    assert (code, out) == (2, "")
    assert err.startswith("robot-rl: ")
    assert len(err.splitlines()) == 1
    assert message in err
    assert list(in_tmp.iterdir()) == []


def test_a_policy_for_another_robot_is_refused(run, in_tmp, small_run):
    code, _, err = run("train", "task=go2_flat", "learner=distill", f"teacher.run={small_run}")
    assert code == 2
    assert "is for the robot cartpole, must be for unitree_go2" in err
