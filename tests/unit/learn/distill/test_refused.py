"""Teachers that cannot teach, each refused in one line."""

from dataclasses import fields

import pytest

from robot_rl.errors import UserError
from robot_rl.learn.algorithms.distill.config import DistillLearnerCfg, TeacherCfg
from robot_rl.learn.trainer import Trainer

from .conftest import FallEnv, student_cfg, teacher_cfg, without_teacher


def settings_of(cfg):
    return {field.name: getattr(cfg, field.name) for field in fields(cfg)}


def test_a_changed_teacher_is_refused(teacher_run, tmp_path):
    runner = Trainer(FallEnv(), student_cfg(teacher_run), run_dir=tmp_path / "student")
    runner.train(1)
    moved = teacher_run.rename(tmp_path / "moved")
    Trainer(FallEnv(), student_cfg(moved)).load(runner.checkpoint)  # The same weights elsewhere are the same teacher.
    later = Trainer(FallEnv(), teacher_cfg(), run_dir=moved)
    later.load(moved / "checkpoints" / "000000")
    later.train(1)
    with pytest.raises(
        UserError, match=r"^teacher\.run: '.*000001' is not the policy that the run began with, .*000000 "
    ) as error:
        Trainer(FallEnv(), student_cfg(moved)).load(runner.checkpoint)
    assert "\n" not in str(error.value)
    Trainer(FallEnv(), student_cfg(moved / "checkpoints" / "000000")).load(runner.checkpoint)


def test_a_run_without_a_teacher_gets_none_on_resume(teacher_run, tmp_path):
    cfg = without_teacher(student_cfg(teacher_run))
    runner = Trainer(FallEnv(), cfg, run_dir=tmp_path / "plain")
    runner.train(1)
    with pytest.raises(UserError, match=r"teacher\.run: .* the run to resume has none"):
        Trainer(FallEnv(), student_cfg(teacher_run)).load(runner.checkpoint)


@pytest.mark.parametrize(
    ("teacher", "settings", "message"),
    [
        ({"run": ""}, {}, r"^teacher\.run: '' names no policy, must be a run's directory or one of its checkpoints$"),
        ({"run": "nowhere"}, {}, r"^teacher\.run: 'nowhere' is neither a run's directory nor a checkpoint$"),
        ({"groups": ("stat",)}, {}, r"^teacher\.groups: the environment has no group 'stat', did you mean 'state'"),
        (
            {"groups": ("state", "critic")},
            {},
            r"^teacher\.groups: \['state', 'critic'\] have shape \(2,\), \(2,\), must be \(2,\) for the policy of",
        ),
    ],
)
def test_a_teacher_that_is_not_to_be_had(teacher_run, teacher, settings, message):
    cfg = student_cfg(teacher_run, teacher=TeacherCfg(**({"run": str(teacher_run)} | teacher)), **settings)
    with pytest.raises(UserError, match=message) as error:
        Trainer(FallEnv(), cfg)
    assert "\n" not in str(error.value)


def test_a_teacher_with_other_actions(teacher_run, make_point_env, small_cfg):
    class TwoEnv(FallEnv):
        def __init__(self):
            super().__init__()
            self.num_actions = 2

    with pytest.raises(UserError, match=r"has actions of shape \(1,\), must be shape \(2,\) as here"):
        Trainer(TwoEnv(), student_cfg(teacher_run))


def test_a_missing_group_of_the_teacher(teacher_run, make_point_env, small_cfg):
    cfg = DistillLearnerCfg(**settings_of(small_cfg) | {"name": "distill", "teacher": TeacherCfg(run=str(teacher_run))})
    with pytest.raises(UserError, match=r"^teacher\.groups: the environment has no group 'state'"):
        Trainer(make_point_env(), cfg)
