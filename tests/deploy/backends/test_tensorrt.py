"""The TensorRT backend, compiled against a stand-in of TensorRT 10 and 11 and run on a fake that computes on the CPU.

It has not met a GPU here. What these tests hold is all that is ours: which calls are made, in which order, with which
memory; the graph; the kept engine; and that each precision passes the golden sequence or is not taken.
"""

import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest
import robot_rl_runtime as rt

from tests.deploy.conftest import load as load_tests

pytestmark = pytest.mark.long
unit = load_tests("unit/deploy/test_precision.py")
written = unit.written
ROOT = Path(__file__).parents[3]
STANDIN = ROOT / "tests/deploy/stub_tensorrt"


@pytest.fixture(scope="session")
def programs(tmp_path_factory):
    """The probe for each version of TensorRT, built where the runtime was built, or else in a folder of its own."""
    if shutil.which("cmake") is None or shutil.which("g++") is None:
        if "ROBOT_RL_REQUIRE_ALL" in os.environ:
            pytest.fail("cmake and g++ are needed")
        pytest.skip("cmake and g++ are needed")
    build = Path(rt.__file__).parents[2]
    if not (build / "CMakeCache.txt").exists():
        build = tmp_path_factory.mktemp("build")
    configure = ["cmake", "-S", ROOT / "deploy_jetson/runtime", "-B", build, f"-DROBOT_RL_TENSORRT_STANDIN={STANDIN}"]
    if not (build / "CMakeCache.txt").exists():
        # Nothing here is measured: the compiler's time counts.
        configure += ["-DROBOT_RL_PYTHON=OFF", "-DCMAKE_CXX_FLAGS_RELEASE=-O0"]
    subprocess.run(configure, check=True, stdout=subprocess.DEVNULL)
    targets = ["trt_probe_10", "trt_probe_11"]
    subprocess.run(["cmake", "--build", build, "-j2", "--target", *targets], check=True, stdout=subprocess.DEVNULL)
    return {version: build / f"trt_probe_{version}" for version in (10, 11)}


@pytest.fixture(params=[10, 11])
def version(request):
    return request.param


@pytest.fixture
def probe(programs, version, tmp_path):
    """A function that opens a bundle in the probe of a version; it gives the report, or the line of the refusal."""

    def run(bundle, name="tensorrt", precision="fp32", *, cache=tmp_path / "engines", version=version, **environment):
        command = [programs[version], bundle, name, precision, cache]
        surroundings = os.environ | environment
        done = subprocess.run(command, env=surroundings, capture_output=True, text=True, timeout=120)
        if done.returncode == 0:
            return json.loads(done.stdout) | {"said": done.stderr}
        assert done.returncode == 2, done.stderr
        return done.stderr.splitlines()[-1]

    run.cache = tmp_path / "engines"
    return run


def golden_error(report):
    return float(report["why"].rsplit("golden error ", 1)[1])


def test_network_runs_as_one_graph_over_pinned_memory(probe, version, small):
    found = probe(small)
    assert found["identity"] == (
        f"tensorrt {version}.3.0, CUDA 13.0, Fake Thor sm110, fp32, CUDA graph, engine built now"
    )
    assert golden_error(found) < 1e-6  # TF32, which is on by default, would leave 1e-4
    assert found["enqueues"] == 2  # the first run, and the capture; every later one is a launch
    assert found["captures"] == 1
    assert found["launches"] > 256 + 200
    assert found["synchronized"] == found["launches"] + 2
    assert found["blocking_sync"]  # a waiting thread sleeps
    assert found["live"] == 0  # all memory, streams and graphs were given back


def test_memory_goes_in_and_out(probe, remembering):
    found = probe(remembering)
    assert found["same_in_place"]
    assert golden_error(found) < 1e-6


def test_engine_is_built_once(probe, version, small):
    first, second = probe(small), probe(small)
    assert (first["builds"], second["builds"]) == (1, 0)
    assert "building the TensorRT engine" in first["said"]
    assert second["said"] == ""
    assert second["identity"].endswith("engine from the cache")
    (path,) = probe.cache.iterdir()
    assert path.name.endswith(f"-trt{version}.3.0-cuda13.0-Fake_Thor_sm110-fp32.engine")
    assert path.stat().st_mode & 0o777 == 0o600
    assert probe.cache.stat().st_mode & 0o777 == 0o700


def test_engine_of_another_network_gpu_or_version_is_not_taken(probe, version, small, remembering):
    probe(small)
    assert probe(remembering)["builds"] == 1
    assert probe(small, FAKE_GPU="Fake Orin")["builds"] == 1
    assert probe(small, version=21 - version)["builds"] == 1
    assert len(list(probe.cache.iterdir())) == 4
    assert probe(small)["builds"] == 0


@pytest.mark.parametrize("damage", ["cut", "bit", "magic", "empty"])
def test_damaged_engine_is_built_again(probe, small, damage):
    probe(small)
    (path,) = probe.cache.iterdir()
    data = path.read_bytes()
    changed = {"cut": data[:-5], "bit": data[:-1] + bytes([data[-1] ^ 1]), "magic": b"x" + data[1:], "empty": b""}
    path.write_bytes(changed[damage])
    found = probe(small)
    assert found["builds"] == 1
    assert "is damaged; it is built again" in found["said"]
    assert path.read_bytes() == data
    assert probe(small)["builds"] == 0


def test_engine_that_others_may_write_is_not_taken(probe, small):
    probe(small)
    (path,) = probe.cache.iterdir()
    path.chmod(0o666)
    found = probe(small)
    assert found["builds"] == 1
    assert "others may write" in found["said"]
    probe.cache.chmod(0o777)
    assert probe(small)["builds"] == 1


def test_folder_that_cannot_be_written_costs_the_cache_alone(probe, small, tmp_path):
    (tmp_path / "file").write_text("")
    found = probe(small, cache=tmp_path / "file" / "engines")
    assert found["identity"].endswith("engine built now, not kept")
    assert "cannot be written" in found["said"]


def test_folder_comes_from_the_environment(probe, small, tmp_path):
    probe(small, cache="", XDG_CACHE_HOME=str(tmp_path / "xdg"))
    assert len(list((tmp_path / "xdg/robot-rl").iterdir())) == 1
    probe(small, cache="", XDG_CACHE_HOME="", HOME=str(tmp_path / "home"))
    assert len(list((tmp_path / "home/.cache/robot-rl").iterdir())) == 1
    assert "--engine-cache is empty" in probe(small, cache="", XDG_CACHE_HOME="", HOME="")


def test_half_precision_is_measured_by_the_golden_sequence(probe, version, small):
    found = probe(small, precision="fp16")
    if version == 11:
        assert "TensorRT 11 takes the precision from the network" in found
        return
    assert "fp16" in found["identity"]
    assert 5e-6 < golden_error(found) < 1e-2
    assert "fp16.engine" in "".join(path.name for path in probe.cache.iterdir())


@pytest.mark.parametrize("version", [10])  # 11 has no such flag
@pytest.mark.parametrize(
    ("how", "line"),
    [
        ("bad_fp16", "golden replay: action 'joint_00' is"),
        ("silent_fp32", "is that of fp32, so it was not run in fp16"),
    ],
)
def test_half_precision_that_is_bad_or_none_is_refused(probe, small, how, line):
    assert line in probe(small, precision="fp16", FAKE_TRT=how)


@pytest.mark.parametrize(
    ("how", "line"),
    [
        ("wrong", "golden replay: action 'joint_00' is"),
        ("fails", "the first inference failed"),
        ("no_parse", "cannot be read by TensorRT (the fake parser found an operator"),
        ("no_gpu", "opening the GPU failed (no CUDA-capable device is detected)"),
    ],
)
def test_what_goes_wrong_is_said_in_a_line(probe, small, how, line):
    assert line in probe(small, FAKE_TRT=how)


def test_without_a_graph_every_run_is_enqueued(probe, small):
    found = probe(small, FAKE_TRT="no_capture")
    assert "no CUDA graph" in found["identity"]
    assert (found["captures"], found["launches"]) == (0, 0)
    assert found["enqueues"] > 256 + 200
    assert golden_error(found) < 1e-6


def test_auto_measures_each_and_says_why(probe, version, small):
    found = probe(small, "auto", "auto")
    assert "the shortest p99.9 of those that pass the golden replay" in found["why"]
    for label in ("onnxruntime fp32: p99.9 ", "tensorrt fp32: p99.9 "):
        assert label in found["why"]
    assert ("tensorrt fp16: p99.9" if version == 10 else "tensorrt fp16: refused, --precision") in found["why"]
    assert found["identity"] in found["why"]


def test_auto_takes_what_is_left(probe, small):
    found = probe(small, "auto", "fp32", FAKE_TRT="wrong")
    assert found["identity"].startswith("onnxruntime")
    assert "tensorrt fp32: refused, golden replay" in found["why"]
    found = probe(small, "auto", "fp32", FAKE_TRT="no_gpu")
    assert found["identity"].startswith("onnxruntime")


def test_onnx_runtime_asked_for_leaves_the_gpu_alone(probe, small):
    found = probe(small, "onnxruntime")
    assert found["identity"].startswith("onnxruntime")
    assert (found["enqueues"], found["builds"]) == (0, 0)


@pytest.mark.parametrize("mode", unit.MODES)
def test_a_network_with_a_precision_runs_in_its_own_types(probe, written, version, mode):
    found = probe(written(mode)[0])
    assert f", Fake Thor sm110, {mode}, CUDA graph, engine built now" in found["identity"]
    assert f"_sm110-{mode}.engine" in next(probe.cache.iterdir()).name
    assert f"tensorrt {mode}: golden error" in found["why"]
    line = probe(written(mode)[0], precision="fp16")
    assert f"--precision=fp16: the bundle's precision is {mode}, and its network runs in no other" in line


def test_auto_measures_a_precision_on_each(probe, written):
    found = probe(written("int8")[0], "auto", "auto")
    assert "onnxruntime int8: p99.9 " in found["why"]
    assert "tensorrt int8: p99.9 " in found["why"]
    assert "fp16" not in found["why"]


@pytest.mark.parametrize(("mode", "capability", "needed"), [("fp8", "87", "sm89"), ("bf16", "75", "sm80")])
def test_a_gpu_without_the_precision_is_named(probe, written, mode, capability, needed):
    bundle = written(mode)[0]
    line = probe(bundle, FAKE_SM=capability)
    assert f"the bundle's precision is {mode}, and TensorRT on Fake Thor sm{capability} has none, which needs" in line
    assert f"needs {needed}; take --backend onnxruntime, or a bundle in fp32" in line
    found = probe(bundle, "auto", FAKE_SM=capability)
    assert found["identity"].startswith("onnxruntime")
    assert f"tensorrt {mode}: refused, policy.onnx: the bundle's precision is {mode}" in found["why"]
    assert probe(written("int8")[0], FAKE_SM=capability)["identity"].startswith("tensorrt")
    assert "cannot read it (the fake parser" in probe(written("int8")[0], FAKE_TRT="no_parse")
