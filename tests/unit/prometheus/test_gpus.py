"""This machine's GPUs, as NVML and nvidia-smi report them."""

import sys
from types import SimpleNamespace

import pytest

from robot_rl.prometheus.gpus import parse_gpus, read_gpus


class NVMLError(Exception):
    pass


def test_the_output_of_nvidia_smi():
    text = "0, GPU-1, NVIDIA H100 80GB HBM3, 97, 1024, 81559\n1, GPU-2, NVIDIA H100, [N/A], [N/A], 81559\n\nno line\n"
    first, second = parse_gpus(text)
    assert (first.index, first.uuid, first.name) == (0, "GPU-1", "NVIDIA H100 80GB HBM3")
    assert (first.utilization, first.memory_used, first.memory_total) == (0.97, 2.0**30, 81559 * 2.0**20)
    assert (second.utilization, second.memory_used) == (None, None)


@pytest.fixture
def no_nvml(monkeypatch):
    """No package pynvml."""
    monkeypatch.setitem(sys.modules, "pynvml", None)


def test_the_command_is_asked_where_the_package_is_missing(no_nvml, tmp_path, monkeypatch):
    command = tmp_path / "nvidia-smi"
    command.write_text('#!/bin/sh\n[ "$2" = "--format=csv,noheader,nounits" ] && echo "0, GPU-1, T4, 5, 1, 2"\n')
    command.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert [gpu.name for gpu in read_gpus()] == ["T4"]
    command.write_text("#!/bin/sh\nexit 9\n")
    assert read_gpus() == []
    command.unlink()
    assert read_gpus() == []


def make_nvml(**changes):
    def refuse(*_):
        raise NVMLError

    functions = {
        "nvmlInit": lambda: None,
        "nvmlShutdown": lambda: None,
        "nvmlDeviceGetCount": lambda: 1,
        "nvmlDeviceGetHandleByIndex": lambda index: index,
        "nvmlDeviceGetUUID": lambda _: b"GPU-1",
        "nvmlDeviceGetName": lambda _: "H100",
        "nvmlDeviceGetUtilizationRates": refuse,
        "nvmlDeviceGetMemoryInfo": lambda _: SimpleNamespace(used=1, total=2),
    }
    return SimpleNamespace(NVMLError=NVMLError, refuse=refuse, **(functions | changes))


def test_nvml_without_a_value_and_without_a_driver(monkeypatch):
    nvml = make_nvml()
    monkeypatch.setitem(sys.modules, "pynvml", nvml)
    (gpu,) = read_gpus()
    assert (gpu.uuid, gpu.name, gpu.utilization, gpu.memory_used, gpu.memory_total) == ("GPU-1", "H100", None, 1, 2)
    monkeypatch.setitem(sys.modules, "pynvml", make_nvml(nvmlInit=nvml.refuse))
    assert read_gpus() == []
