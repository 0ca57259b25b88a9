"""This machine's GPUs, as nvidia-smi reports them."""

from robot_rl.cluster.prometheus.gpus import parse_gpus, read_gpus


def test_the_output_of_nvidia_smi():
    text = "0, GPU-1, NVIDIA H100 80GB HBM3, 97, 1024, 81559\n1, GPU-2, NVIDIA H100, [N/A], [N/A], 81559\n\nno line\n"
    first, second = parse_gpus(text)
    assert (first.index, first.uuid, first.name) == (0, "GPU-1", "NVIDIA H100 80GB HBM3")
    assert (first.utilization, first.memory_used, first.memory_total) == (0.97, 2.0**30, 81559 * 2.0**20)
    assert (second.utilization, second.memory_used) == (None, None)


def test_the_command_is_asked(tmp_path, monkeypatch):
    command = tmp_path / "nvidia-smi"
    command.write_text('#!/bin/sh\n[ "$2" = "--format=csv,noheader,nounits" ] && echo "0, GPU-1, T4, 5, 1, 2"\n')
    command.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert [gpu.name for gpu in read_gpus()] == ["T4"]
    command.write_text("#!/bin/sh\nexit 9\n")
    assert read_gpus() == []
    command.unlink()
    assert read_gpus() == []
