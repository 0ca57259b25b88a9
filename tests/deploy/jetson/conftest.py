"""The compiled runtime and a small bundle."""

import importlib.util
import os
import shutil
from pathlib import Path

import pytest

UNIT = Path(__file__).parents[2] / "unit" / "deploy" / "conftest.py"


@pytest.fixture(scope="session")
def runtime():
    """The compiled runtime; where everything is required it must be there."""
    if os.environ.get("ROBOT_RL_REQUIRE_ALL"):
        import robot_rl_runtime

        return robot_rl_runtime
    return pytest.importorskip("robot_rl_runtime")


@pytest.fixture(scope="session")
def small_bundle(tmp_path_factory):
    """A bundle of a toy robot with three joints; tests copy it before they change it."""
    spec = importlib.util.spec_from_file_location("toy_robot", UNIT)
    assert spec is not None
    assert spec.loader is not None
    toy = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(toy)
    from robot_rl_deploy.contract import TrainingSpec
    from robot_rl_deploy.export import export_policy

    out = tmp_path_factory.mktemp("bundle") / "policy"
    run = TrainingSpec(run_id="20261120-220000-1-abcd", task="toy_task", git_commit="0" * 40, iteration=300)
    export_policy(toy.ToyEnv(num_envs=1), toy.ToyActor(30, 2), out, run=run)
    return out


@pytest.fixture
def bundle(small_bundle, tmp_path):
    """A copy of the bundle."""
    return Path(shutil.copytree(small_bundle, tmp_path / "bundle"))
