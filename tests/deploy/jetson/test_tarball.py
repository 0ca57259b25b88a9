"""The tarball for a robot's computer: what is in it, that its parts fit together, and what its scripts refuse."""

import hashlib
import json
import os
import re
import shutil
import subprocess
import tarfile
import tomllib
from pathlib import Path

import pytest
from robot_rl_deploy.bundle import sign_bundle
from robot_rl_deploy.signing import make_key
from robot_rl_deploy.strict import ContractError
from robot_rl_deploy.tarball import Packing, environment, find_runtime, write_tarball

from robot_rl.cli.main import main

ROOT = Path(__file__).parents[3]
NAME = "toy-20261120-220000-1-abcd"


@pytest.fixture(scope="module")
def packed(toy_bundle, tmp_path_factory):
    """A tarball, unpacked; tests copy it before they change it."""
    to = tmp_path_factory.mktemp("deploy")
    tarball, _ = write_tarball(toy_bundle, to)
    with tarfile.open(tarball) as archive:
        archive.extractall(to, filter="data")
    return to / NAME


@pytest.fixture
def unpacked(packed, tmp_path):
    return shutil.copytree(packed, tmp_path / NAME)


def sh(*words, cwd, **environment):
    return subprocess.run(
        words, cwd=cwd, capture_output=True, text=True, timeout=60, check=False, env={**os.environ, **environment}
    )


def test_the_policies_of_a_team_have_tarballs_of_their_own(toy_bundle, tmp_path):
    for name in ("front", "rear"):
        shutil.copytree(toy_bundle, tmp_path / "policy" / name)
    tarballs = [write_tarball(tmp_path / "policy" / name, tmp_path / "deploy")[0].name for name in ("front", "rear")]
    assert tarballs == [f"{NAME}-front.tar.gz", f"{NAME}-rear.tar.gz"]


def test_it_holds_sources_bundle_scripts_and_their_hashes(packed):
    inside = {path.relative_to(packed).as_posix() for path in packed.rglob("*") if path.is_file()}
    assert {"runtime/CMakeLists.txt", "runtime/src/main.cpp", "runtime/cmake/aarch64-linux-gnu.cmake"} <= inside
    assert {f"bundle/{name}" for name in ("policy.onnx", "contract.json", "golden.npz", "SHA256SUMS")} <= inside
    assert {"build.sh", "doctor.sh", "install.sh", "robot-rl.service", "settings.json", "robot-rl.env"} <= inside
    assert not any("__pycache__" in name or name.endswith(".so") for name in inside)
    sums = dict(reversed(line.split("  ")) for line in (packed / "SHA256SUMS").read_text().splitlines())
    assert sums.keys() == inside - {"SHA256SUMS"}
    assert all(hashlib.sha256((packed / name).read_bytes()).hexdigest() == digest for name, digest in sums.items())
    assert all(os.access(packed / f"{name}.sh", os.X_OK) for name in ("build", "doctor", "install"))
    sources = {f"runtime/src/{path.name}" for path in (find_runtime() / "src").glob("*.cpp")}
    assert sources <= inside
    assert json.loads((packed / "MANIFEST.json").read_text())["training"]["run_id"] == "20261120-220000-1-abcd"


def test_the_same_inputs_give_the_same_bytes(bundle, tmp_path):
    first, report = write_tarball(bundle, tmp_path / "a")
    second, _ = write_tarball(bundle, tmp_path / "b")
    assert first.read_bytes() == second.read_bytes()
    assert first.name == f"{NAME}.tar.gz"
    assert report.contract.robot == "toy"
    assert list((tmp_path / "a").iterdir()) == [first]


def test_a_damaged_bundle_is_not_packed(bundle, tmp_path):
    (bundle / "contract.json").write_text((bundle / "contract.json").read_text().replace("0.25", "0.26"))
    with pytest.raises(ContractError, match="does not have the hash"):
        write_tarball(bundle, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def content(tarball, name):
    with tarfile.open(tarball) as archive:
        return archive.extractfile(f"{NAME}/{name}").read()  # type: ignore[union-attr]


def test_the_wheel_goes_along_where_it_is_for_arm(bundle, tmp_path):
    wheel = tmp_path / "onnxruntime-1.27.0-cp312-cp312-manylinux_2_28_aarch64.whl"
    wheel.write_bytes(b"a wheel")
    tarball, _ = write_tarball(bundle, tmp_path / "out", Packing(onnxruntime=wheel, operator="none"))
    assert content(tarball, wheel.name) == b"a wheel"
    assert b"--operator none" in content(tarball, "robot-rl.env")
    for name in ("onnxruntime-1.27.0-cp312-cp312-manylinux_2_28_x86_64.whl", "build.sh"):
        other = wheel.with_name(name)
        other.write_bytes(b"")
        with pytest.raises(ContractError, match="must be an aarch64 wheel of ONNX Runtime"):
            write_tarball(bundle, tmp_path / "out", Packing(onnxruntime=other))


@pytest.mark.parametrize(
    ("packing", "line"),
    [
        (Packing(transport="tcp:1.2.3.4:5"), "transport=tcp:1.2.3.4:5: must be udp:HOST:PORT"),
        (Packing(transport="dds:unitree_g1"), "transport=dds:unitree_g1: must be"),
        (Packing(transport="udp:robot"), "transport=udp:robot: must be"),
        (Packing(operator="shm:a"), "operator=shm:a: must be udp:HOST:PORT, robot or none"),
    ],
)
def test_an_address_that_the_robot_would_refuse_is_refused_here(bundle, tmp_path, packing, line):
    with pytest.raises(ContractError, match=line):
        write_tarball(bundle, tmp_path / "out", packing)


def test_a_key_goes_along_with_a_bundle_that_it_signed(bundle, tmp_path):
    public = make_key(tmp_path / "team.key")
    with pytest.raises(ContractError, match=r"SHA256SUMS\.sig"):
        write_tarball(bundle, tmp_path / "out", Packing(public_key=public))
    sign_bundle(bundle, tmp_path / "team.key")
    with pytest.raises(ContractError, match="public key"):  # the private one must not leave
        write_tarball(bundle, tmp_path / "out", Packing(public_key=tmp_path / "team.key"))
    tarball, _ = write_tarball(bundle, tmp_path / "out", Packing(public_key=public))
    assert content(tarball, "key.pub") == public.read_bytes()
    assert len(content(tarball, "bundle/SHA256SUMS.sig")) == 64
    assert b"--signed-by /opt/robot-rl/current/key.pub" in content(tarball, "robot-rl.env")


@pytest.mark.parametrize(
    ("robot", "transport"),
    [
        ("unitree_go2", "dds:unitree_go"),
        ("unitree_g1", "dds:unitree_hg"),
        ("unitree_h1", "dds:unitree_go"),
        ("toy", "udp:127.0.0.1:9870"),
    ],
)
def test_the_transport_is_the_robots(robot, transport):
    assert f"--transport {transport}" in environment(robot, Packing()).replace("'", "")
    operator = "robot" if transport.startswith("dds") else "udp:127.0.0.1:9871"
    assert f'--operator {operator}"' in environment(robot, Packing())
    assert "--transport shm:x " in environment(robot, Packing(transport="shm:x"))


def test_settings_and_options_of_the_service_are_those_that_the_binary_knows(infer, packed):
    unit = (packed / "robot-rl.service").read_text()
    known = infer("--help").stdout
    command = re.search(r"^ExecStart=(.*)$", unit.replace("\\\n", " "), re.MULTILINE)
    assert command is not None
    words = re.findall(r"--[a-z-]+", command.group(1) + environment("toy", Packing(public_key=packed / "key")))
    assert {"--bundle", "--settings", "--log", "--require-realtime", "--transport", "--signed-by"} <= set(words)
    assert all(f"{word} " in known for word in words)
    done = infer("--bundle", packed / "bundle", "--settings", packed / "settings.json", "--check")
    assert done.returncode == 0, done.stderr
    wrong = packed.parent / "wrong.json"
    wrong.write_text((packed / "settings.json").read_text().replace("tilt_rad", "tilt_deg"))
    done = infer("--bundle", packed / "bundle", "--settings", wrong, "--check")
    assert done.returncode == 2
    assert "tilt_deg" in done.stderr


def test_the_service_is_a_right_unit_that_lets_the_watchdog_live(packed, tmp_path):
    unit = (packed / "robot-rl.service").read_text()
    assert {"KillMode=process", "Restart=no", "LimitRTPRIO=95", "LimitMEMLOCK=infinity"} <= set(unit.splitlines())
    if shutil.which("systemd-analyze") is None:
        pytest.skip("no systemd-analyze here")
    done = sh(
        "systemd-analyze", "verify", "--man=no", "--recursive-errors=no", packed / "robot-rl.service", cwd=tmp_path
    )
    said = [line for line in done.stderr.splitlines() if "robot-rl" in line and "not executable" not in line]
    assert said == []


def test_the_build_stops_at_a_damaged_file_and_at_an_unknown_option(unpacked):
    done = sh("./build.sh", "--fast", cwd=unpacked)
    assert done.returncode == 2
    assert done.stderr == "build.sh: '--fast' is unknown; it takes --packages, --toolchain FILE, --jobs N\n"
    (unpacked / "runtime" / "src" / "safety.cpp").write_text("// nothing is dangerous\n")
    done = sh("./build.sh", cwd=unpacked)
    assert done.returncode != 0
    assert "runtime/src/safety.cpp" in done.stdout + done.stderr
    assert not (unpacked / "build").exists()


def test_the_installation_keeps_settings_and_switches_at_once(unpacked, tmp_path):
    root = tmp_path / "root"
    assert sh("./install.sh", cwd=unpacked, DESTDIR=root).returncode == 2  # nothing is built
    (unpacked / "bin").mkdir()
    (unpacked / "bin" / "robot-rl-infer").write_text("#!/bin/sh\necho first $*\n")
    (unpacked / "bin" / "robot-rl-infer").chmod(0o755)
    done = sh("./install.sh", cwd=unpacked, DESTDIR=root)
    assert done.returncode == 0, done.stderr
    current = root / "opt" / "robot-rl" / "current"
    first = os.readlink(current)
    assert (current / "bundle" / "contract.json").is_file()
    assert (root / "etc" / "systemd" / "system" / "robot-rl.service").is_file()
    mine = root / "etc" / "robot-rl" / "robot-rl.env"
    mine.write_text('ROBOT_RL_ARGS="--transport shm:mine"\n')
    (unpacked / "bin" / "robot-rl-infer").write_text("#!/bin/sh\necho second\n")
    done = sh("./install.sh", cwd=unpacked, DESTDIR=root)
    assert done.returncode == 0, done.stderr
    assert "robot-rl.env is kept" in done.stderr
    assert "shm:mine" in mine.read_text()
    assert (mine.parent / "robot-rl.env.new").read_text() == (unpacked / "robot-rl.env").read_text()
    assert os.readlink(current) != first
    assert (root / "opt" / "robot-rl" / first / "bin" / "robot-rl-infer").read_text().endswith("first $*\n")


def test_the_command_line_packs_a_bundle_and_names_what_is_missing(bundle, tmp_path, capsys):
    assert main(["deploy", f"policy={bundle}", f"to={tmp_path / 'out'}"]) == 0
    said = capsys.readouterr().out
    assert f"{NAME}.tar.gz: toy" in said
    assert "./build.sh" in said
    assert main(["deploy", f"policy={tmp_path / 'nothing'}", f"to={tmp_path / 'out'}"]) == 2
    assert main(["deploy", f"policy={bundle}", "key=nowhere.pem"]) == 2
    assert "key=nowhere.pem: the file or folder does not exist" in capsys.readouterr().err
    (tmp_path / "empty").mkdir()
    assert main(["deploy", f"policy={bundle}", f"runtime={tmp_path / 'empty'}", f"to={tmp_path / 'out'}"]) == 2
    assert "missing in the runtime's sources" in capsys.readouterr().err


@pytest.mark.skipif(shutil.which("bash") is None, reason="no bash")
@pytest.mark.parametrize("name", ["build.sh", "doctor.sh", "install.sh"])
def test_the_scripts_are_right_bash(packed, name):
    assert sh("bash", "-n", packed / name, cwd=packed).returncode == 0


def test_an_installed_robot_rl_has_the_sources_too(packed):
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    included = project["tool"]["hatch"]["build"]["targets"]["wheel"]["force-include"]
    assert all(
        (ROOT / here).exists() and there == here.replace("deploy_jetson/", "robot_rl_deploy/", 1)
        for here, there in included.items()
    )
    parts = {path.relative_to(packed).parts[1] for path in (packed / "runtime").rglob("*") if path.is_file()}
    assert {f"deploy_jetson/runtime/{part}" for part in parts} == set(included)
