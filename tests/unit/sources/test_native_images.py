"""A policy that sees images has no bundle: eval evaluates it in torch and says so."""

from types import SimpleNamespace

import pytest
from robot_rl_tasks.registry import get_task

from robot_rl import evaluate
from robot_rl.errors import UserError
from robot_rl.sources.native import NativeSource
from robot_rl.sources.protocol import EvaluationCfg, Worlds


def no_bundle():
    raise UserError("export: the policy sees images (actor, wrist)")


@pytest.fixture
def evaluated(monkeypatch):
    """evaluated(form, groups): what `evaluate_run` is called with."""
    monkeypatch.setattr(evaluate, "evaluate_run", lambda make_env, **given: given)

    def call(form, groups):
        cfg = SimpleNamespace(learner=SimpleNamespace(actor_groups=groups))
        policy = SimpleNamespace(cfg=cfg, is_run=True, torch_policy=lambda: "torch", find_bundle=no_bundle)
        how = EvaluationCfg(episodes=1, seed=0, seconds=1.0, steps=0, form=form)
        worlds = Worlds(num_envs=1, seed=0, engine="mujoco")
        return NativeSource().evaluate(get_task("panda_lift_vision"), worlds, policy, how)

    return call


def test_a_policy_that_sees_images_is_evaluated_in_torch_only(evaluated, capsys):
    given = evaluated("both", ("actor", "wrist"))
    assert (given["policy"], given["bundle"]) == ("torch", None)
    err = capsys.readouterr().err
    assert err == "robot-rl: the policy sees images (wrist), which no bundle holds: evaluated in torch only\n"
    assert evaluated("torch", ("actor", "wrist"))["bundle"] is None
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize(("form", "groups"), [("onnx", ("actor", "wrist")), ("both", ("actor",))])
def test_a_bundle_that_is_needed_is_still_requested(evaluated, form, groups):
    with pytest.raises(UserError, match="export: the policy sees images"):
        evaluated(form, groups)
