"""The tarball, cross-compiled for 64-bit Arm by its own script, and the golden replay of the result under qemu-user."""

import os
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest
from robot_rl_deploy.bundle import write_sums
from robot_rl_deploy.tarball import JETSON, Packing, write_tarball

TOOLS = ("aarch64-linux-gnu-g++", "qemu-aarch64", "cmake")
QEMU = "qemu-aarch64 -L /usr/aarch64-linux-gnu"
PLATFORMS = ("manylinux_2_27_aarch64", "manylinux_2_28_aarch64", "manylinux_2_17_aarch64")


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    """The aarch64 wheel of ONNX Runtime that the tarball names; ROBOT_RL_AARCH64_WHEEL may give a file."""
    if given := os.environ.get("ROBOT_RL_AARCH64_WHEEL"):
        return Path(given)
    folder = tmp_path_factory.mktemp("wheel")
    words = [sys.executable, "-m", "pip", "--disable-pip-version-check", "download", "-q", "--no-deps", "-d", folder]
    words += ["--only-binary=:all:", "--python-version=3.12", *(f"--platform={name}" for name in PLATFORMS)]
    done = subprocess.run([*words, "-r", JETSON / "onnxruntime.txt"], capture_output=True, text=True, check=False)
    if done.returncode and not os.environ.get("ROBOT_RL_REQUIRE_ALL"):
        pytest.skip("no aarch64 wheel of ONNX Runtime to be had here")
    assert done.returncode == 0, done.stderr
    return next(folder.glob("*.whl"))


@pytest.fixture(scope="module")
def built(go2_bundle, wheel, tmp_path_factory):
    """The folder of the tarball after its build script ran; and what that said."""
    missing = [name for name in TOOLS if shutil.which(name) is None]
    if missing and not os.environ.get("ROBOT_RL_REQUIRE_ALL"):
        pytest.skip(f"not here: {', '.join(missing)}")
    assert not missing
    to = tmp_path_factory.mktemp("aarch64")
    tarball, _ = write_tarball(go2_bundle, to, Packing(onnxruntime=wheel))
    with tarfile.open(tarball) as archive:
        archive.extractall(to, filter="data")
    folder = to / tarball.name.removesuffix(".tar.gz")
    words = ["./build.sh", "--toolchain", "runtime/cmake/aarch64-linux-gnu.cmake"]
    done = subprocess.run(
        words, cwd=folder, env=environment(EMULATOR=QEMU), capture_output=True, text=True, timeout=7200, check=False
    )
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    return folder, done.stdout


def environment(**more):
    """This process's environment without the library of this machine's own kind."""
    return {name: value for name, value in os.environ.items() if name != "ROBOT_RL_ONNXRUNTIME"} | more


def run(folder, *words):
    command = [*QEMU.split(), folder / "bin" / "robot-rl-infer", *words]
    return subprocess.run(command, env=environment(), capture_output=True, text=True, timeout=300, check=False)


@pytest.mark.long
def test_the_golden_sequence_is_replayed_by_the_arm_binary(built):
    folder, said = built
    assert (folder / "bin" / "robot-rl-infer").read_bytes()[18:20] == b"\xb7\x00"  # EM_AARCH64
    assert "golden replay of 256 steps" in said
    assert "onnxruntime 1.27.0" in said
    done = run(folder, "--bundle", folder / "bundle", "--check")
    assert done.returncode == 0, done.stderr


@pytest.mark.long
def test_the_arm_binary_refuses_a_bundle_that_differs(built, tmp_path):
    folder, _ = built
    wrong = shutil.copytree(folder / "bundle", tmp_path / "wrong")
    text = (wrong / "contract.json").read_text()
    (wrong / "contract.json").write_text(text.replace('"scale": 0.25', '"scale": 0.26', 1))
    assert run(folder, "--bundle", wrong, "--check").returncode == 3
    write_sums(wrong)
    done = run(folder, "--bundle", wrong, "--check")
    assert done.returncode == 3
    assert "policy.onnx was exported with" in done.stderr
