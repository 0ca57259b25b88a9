"""teacher.policy: the network of a shipped bundle becomes the teacher's, action for action."""

from types import SimpleNamespace
from typing import Any

import onnx
import pytest
import torch
from onnx import helper
from robot_rl_deploy.bundle import read_bundle
from robot_rl_tasks.registry import get_task

from robot_rl.errors import UserError
from robot_rl.learn.policy import make_policy
from robot_rl.runs import bundle_teacher
from robot_rl.runs.inputs import resolve_inputs
from robot_rl.runs.policies import list_policies
from robot_rl.runs.settings import default_tree, resolve
from robot_rl.settings.tree import override


def settings(root, task="panda_lift_vision", **changes):
    return resolve(override(default_tree(task, "cpu", "distill"), {"root": str(root), **changes}))


def teacher_of(cfg) -> Any:
    return cfg.learner.teacher


def test_every_shipped_policy_can_teach_and_acts_as_in_its_golden_sequence(tmp_path):
    assert list_policies()
    for name in list_policies():
        if get_task(name).images:
            with pytest.raises(UserError, match=f"teacher.policy={name}: its network is not a plain perceptron"):
                bundle_teacher.find_teacher(name, tmp_path)
            continue
        path, bundle = bundle_teacher.find_teacher(name, tmp_path)
        actor = make_policy(path.parent, path).actor
        want = torch.tensor(bundle.golden.action)
        bound = torch.tensor([action.clip for action in bundle.contract.actions])
        with torch.no_grad():
            got = actor.mean(torch.tensor(bundle.golden.observation)).clamp(-bound, bound)
        torch.testing.assert_close(got, want, rtol=0, atol=1e-4)
        log_std = actor.params(torch.tensor(bundle.golden.observation))[1]
        torch.testing.assert_close(log_std.exp(), torch.full_like(log_std, bundle_teacher.STD))


def test_the_teacher_is_written_once_and_sees_the_group_of_its_own_task(tmp_path):
    cfg = resolve_inputs(settings(tmp_path))
    assert teacher_of(cfg).groups == ("teacher_actor",)
    assert {"cube", "hand_to_cube"} <= set(cfg.task.observations["teacher_actor"].terms)
    assert not {"cube", "hand_to_cube"} & set(cfg.task.observations["actor"].terms)
    assert cfg.tree["teacher"] == {**cfg.tree["teacher"], "run": "", "policy": "panda_lift"}
    written = [path.stat().st_mtime_ns for path in sorted(tmp_path.rglob("*.safetensors"))]
    assert teacher_of(resolve_inputs(settings(tmp_path))).run == teacher_of(cfg).run
    assert [path.stat().st_mtime_ns for path in sorted(tmp_path.rglob("*.safetensors"))] == written


@pytest.mark.parametrize(
    ("policy", "message"),
    [
        ("panda_lif", "teacher.policy=panda_lif: no such bundle, and no directory of that name; did you mean"),
        ("go2_flat", "teacher.policy=go2_flat: is for the robot unitree_go2, must be for franka_panda"),
        ("panda_reach", "teacher.policy=panda_reach: has actions.scale=2.0, must be 1.0 as in panda_lift_vision"),
    ],
)
def test_a_policy_that_does_not_fit_is_refused(tmp_path, policy, message):
    with pytest.raises(UserError, match=message.replace("(", r"\(")):
        resolve_inputs(settings(tmp_path, **{"teacher.policy": policy}))


def test_a_bundle_in_less_than_float32_is_refused():
    contract = SimpleNamespace(precision=SimpleNamespace(mode="int8"))
    changed: Any = SimpleNamespace(contract=contract)
    with pytest.raises(
        UserError,
        match=r"^teacher.policy=mine: computes in int8; only a bundle in fp32 becomes a network again; name a run$",
    ):
        bundle_teacher._checkpoint(changed, "teacher.policy=mine")


def test_a_network_of_another_kind_is_refused():
    bundle = read_bundle(list_policies()["panda_lift"])
    proto = onnx.load_model_from_string(bundle.model)
    proto.graph.node.insert(2, helper.make_node("Relu", ["mul_2"], ["other"]))
    changed = type("Changed", (), {"model": proto.SerializeToString(), "contract": bundle.contract})
    with pytest.raises(UserError, match=r"teacher.policy=mine: its network is not a plain perceptron \(Sub, Mul, Relu"):
        bundle_teacher._checkpoint(changed, "teacher.policy=mine")  # type: ignore[arg-type]
