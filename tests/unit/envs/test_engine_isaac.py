"""The engine with a Python environment of its own: errors where it is not installed, or MuJoCo is another."""

from importlib import metadata, util

import pytest
import torch
from robot_rl_envs import engines
from robot_rl_envs.engines import resolve_engine
from robot_rl_envs.quat import rotate_inverse

from robot_rl.cli.main import main


@pytest.fixture
def pretend(monkeypatch):
    """Lets packages be of other versions, or missing (None)."""
    real_version, real_spec = metadata.version, util.find_spec

    def versions(**found):
        monkeypatch.setattr(metadata, "version", lambda name: found.get(name) or real_version(name))
        monkeypatch.setattr(engines, "mujoco_version", lambda: metadata.version("mujoco"))
        monkeypatch.setattr(util, "find_spec", lambda name: found[name] if name in found else real_spec(name))

    return versions


def test_without_isaac_lab_it_is_one_line(pretend, capsys):
    pretend(isaaclab=None)
    with pytest.raises(ValueError, match="engine='isaac': Isaac Lab is not in this environment; make isaac"):
        resolve_engine("isaac", "cpu")
    assert main(["train", "task=cartpole", "engine=isaac"]) == 2
    assert "make isaac builds one that has it" in capsys.readouterr().err


def test_another_version_is_one_line(pretend):
    pretend(isaaclab="2.3.1")
    with pytest.raises(ValueError, match=r"Isaac Lab 2\.3\.1 is here, 3\.0 is needed"):
        resolve_engine("isaac", "cpu")


def test_with_an_older_mujoco_auto_is_isaac(pretend):
    pretend(isaaclab="3.0.0", mujoco="3.12.0")
    assert resolve_engine("auto", "cpu") == "isaac"
    assert resolve_engine("isaac", "cuda:0") == "isaac"
    for name in ("mujoco", "mujoco_warp"):
        with pytest.raises(ValueError, match=rf"engine='{name}': MuJoCo 3\.12\.0 is here, 4\.0 is needed"):
            resolve_engine(name, "cpu")


def test_with_our_own_mujoco_auto_is_unchanged(pretend):
    pretend(isaaclab="3.0.0")
    assert resolve_engine("auto", "cpu") == "mujoco"
    assert resolve_engine("auto", "cuda:0") == "mujoco_warp"
    assert resolve_engine("isaac", "cpu") == "isaac"


def test_turning_by_hand():
    # A quarter turn about z, w x y z.
    quat = torch.tensor([[0.5**0.5, 0.0, 0.0, 0.5**0.5]])
    torch.testing.assert_close(rotate_inverse(quat, torch.tensor([[0.0, 1.0, 2.0]])), torch.tensor([[1.0, 0.0, 2.0]]))
