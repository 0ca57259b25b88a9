"""Output that nobody reads: a training goes on without it."""

import os
import subprocess
import sys

import pytest

from robot_rl.cli.process import DroppingFile, LenientStreams


def full():
    return os.open("/dev/full", os.O_WRONLY)


def without_reader():
    reader, writer = os.pipe()
    os.close(reader)
    return writer


def closed():
    number = full()
    os.close(number)
    return number


@pytest.mark.parametrize("make", [full, without_reader, closed])
def test_what_cannot_be_written_is_dropped(monkeypatch, make):
    number = make()
    file = DroppingFile(number)
    assert (file.write(b"abc"), file.isatty()) == (3, False)
    if make is not closed:
        with open(number, "w") as stream, monkeypatch.context() as patch:
            patch.setattr(sys, "stderr", stream)
            with LenientStreams():
                for _ in range(3):
                    print("\u2500 lost", file=sys.stderr, flush=True)
            assert sys.stderr is stream


def test_what_can_be_written_arrives(monkeypatch, tmp_path):
    path = tmp_path / "log"
    with path.open("w", encoding="ascii") as stream, monkeypatch.context() as patch:
        patch.setattr(sys, "stdout", stream)
        with LenientStreams():
            print("kept", "\u2500")
    assert path.read_text() == "kept \\u2500\n"


@pytest.mark.long
@pytest.mark.parametrize("where", ["2>&1 | head -1", "2>/dev/full >/dev/full", ">&- 2>&- <&-"])
def test_a_training_goes_on_without_its_terminal(in_tmp, tiny, where):
    words = " ".join([sys.executable, "-m", "robot_rl.cli.main", "train", "task=cartpole", *tiny])
    script = f"{{ {words}; echo $? > code; }} {where}".replace("[8]", "'[8]'")
    subprocess.run(["bash", "-c", script], timeout=300, stdout=subprocess.DEVNULL)
    assert (in_tmp / "code").read_text() == "0\n"
    (run_dir,) = in_tmp.glob("runs/cartpole/*")
    assert (run_dir / "checkpoints" / "000002").is_dir()
