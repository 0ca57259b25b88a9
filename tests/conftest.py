"""What every test shares: the order (fast first), and what a machine may lack."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

# Before MuJoCo is imported by anything: without a display it renders through EGL or not at all.
if sys.platform == "linux" and not os.environ.get("DISPLAY"):
    os.environ.setdefault("MUJOCO_GL", "egl")

# Set in CI: what a laptop may lack must be there.
REQUIRE_ALL = os.environ.get("ROBOT_RL_REQUIRE_ALL") == "1"

RENDER_ONE_PIXEL = (
    "import mujoco; m = mujoco.MjModel.from_xml_string('<mujoco/>'); r = mujoco.Renderer(m, 8, 8); "
    "d = mujoco.MjData(m); mujoco.mj_forward(m, d); r.update_scene(d); r.render()"
)


def lacking(what: str) -> None:
    """Skips the test that asked with one line; fails it where everything has to be there."""
    if REQUIRE_ALL:
        pytest.fail(f"{what}, and ROBOT_RL_REQUIRE_ALL=1")
    pytest.skip(what)


def pytest_collection_modifyitems(items):
    """Fast tests first: units, then contracts, the robot binary, parity and whatever is slow."""
    order = {"unit": 0, "contracts": 1, "deploy": 2, "parity": 3, "gpu": 4}

    def rank(item):
        folder = next((part for part in item.path.parts if part in order), "unit")
        return item.get_closest_marker("slow") is not None, order[folder]

    items.sort(key=rank)


def pytest_runtest_setup(item):
    """Tests of a CUDA device or of Isaac Lab run where these are."""
    if item.get_closest_marker("gpu"):
        import torch

        if not torch.cuda.is_available():
            pytest.skip("no CUDA device")
    if item.get_closest_marker("isaac"):
        pytest.importorskip("isaaclab", reason="Isaac Lab is not in this environment")


@pytest.fixture(scope="session")
def gl() -> str:
    """The name of an OpenGL backend with which MuJoCo renders without a display; in MUJOCO_GL as well."""
    for backend in dict.fromkeys([os.environ.get("MUJOCO_GL", "egl"), "egl", "osmesa"]):
        env = {**os.environ, "MUJOCO_GL": backend, "PYOPENGL_PLATFORM": backend}
        done = subprocess.run([sys.executable, "-c", RENDER_ONE_PIXEL], env=env, capture_output=True, timeout=120)
        if done.returncode == 0:
            os.environ["MUJOCO_GL"] = backend
            return backend
    lacking("no OpenGL without a display (Debian: libegl1 libegl-mesa0 libgl1-mesa-dri, or libosmesa6)")
    raise AssertionError


@pytest.fixture(scope="session")
def chromium() -> Path:
    """The path of a Chromium or Chrome that can be run headless."""
    for name in ("chromium", "chromium-browser", "google-chrome"):
        found = shutil.which(name)
        if found:
            return Path(found)
    lacking("no Chromium (Debian: chromium)")
    raise AssertionError
