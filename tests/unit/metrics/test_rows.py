"""metrics.jsonl over kills, torn writes, full disks and damage: whole rows of rising iterations, none of them twice."""

import errno
import fcntl
import json
import os

import pytest

from robot_rl.errors import UserError
from robot_rl.metrics.rows import NAME, Rows, lock, refuse_locked
from robot_rl.metrics.writers import read_metrics


def is_locked(path):
    try:
        refuse_locked(path)
    except UserError:
        return True
    return False


def fill(rows, first, last):
    for iteration in range(first, last + 1):
        rows.append({"iteration": iteration, "x": iteration / 3})


def content(directory):
    return [json.loads(line) for line in (directory / NAME).read_bytes().split(b"\n")[:-1]]


def steps(directory):
    return [row["iteration"] for row in content(directory)]


@pytest.fixture
def messages():
    return []


@pytest.fixture
def killed(tmp_path):
    """The mark of a checkpoint at iteration 5, with 3 rows and a torn one behind it."""
    rows = Rows(tmp_path)
    fill(rows, 1, 5)
    mark = rows.mark()
    fill(rows, 6, 8)
    rows.close()
    with (tmp_path / NAME).open("ab") as file:
        file.write(b'{"iteration": 9, "x"')
    return mark


def test_what_is_behind_the_checkpoint_is_cut_off(tmp_path, killed, messages):
    whole = (tmp_path / NAME).read_bytes().split(b"\n")[:8]
    rows = Rows(tmp_path, killed, messages.append)
    assert steps(tmp_path) == [1, 2, 3, 4, 5]
    fill(rows, 6, 8)
    assert (tmp_path / NAME).read_bytes().split(b"\n")[:-1] == whole
    assert (messages, killed["rows"], killed["bytes"]) == ([], 5, sum(len(line) + 1 for line in whole[:5]))
    assert not (tmp_path / f"{NAME}.damaged").exists()


def test_any_number_of_kills_leaves_every_row_once(tmp_path, messages):
    mark = None
    for kill in range(6):
        rows = Rows(tmp_path, mark, messages.append)
        fill(rows, 4 * kill + 1, 4 * kill + 4)
        mark = rows.mark()
        fill(rows, 4 * kill + 5, 4 * kill + 5 + kill)
        rows.close()
    Rows(tmp_path, mark, messages.append).close()
    assert (steps(tmp_path), messages) == (list(range(1, 25)), [])


def test_a_torn_line_is_cut_off_without_a_checkpoint(tmp_path, killed):
    rows = Rows(tmp_path)
    fill(rows, 9, 9)
    assert steps(tmp_path) == list(range(1, 10))


def test_an_iteration_that_is_done_again_is_there_once(tmp_path, killed):
    rows = Rows(tmp_path)
    rows.append({"iteration": 4, "x": 0.5})
    assert [(row["iteration"], row["x"]) for row in content(tmp_path)][-2:] == [(3, 1.0), (4, 0.5)]
    assert rows.mark()["rows"] == 4
    fill(rows, 5, 5)
    assert steps(tmp_path) == [1, 2, 3, 4, 5]


@pytest.mark.parametrize("left", [0, 3, 5, 40, 72])
def test_a_file_that_lost_its_end_keeps_its_whole_rows_and_reports_it(tmp_path, killed, messages, left):
    data = (tmp_path / NAME).read_bytes()[:left]
    (tmp_path / NAME).write_bytes(data)
    rows = Rows(tmp_path, killed, messages.append)
    kept = data.count(b"\n")
    assert steps(tmp_path) == list(range(1, kept + 1))
    (line,) = messages
    assert f"{NAME}: damaged, {kept} of the checkpoint's 5 rows" in line
    fill(rows, 6, 7)
    assert steps(tmp_path) == [*range(1, kept + 1), 6, 7]


@pytest.mark.parametrize("harm", ["flipped", "zeros", "gone", "twice", "text"])
def test_only_the_row_that_is_damaged_in_the_middle_is_left_out(tmp_path, killed, messages, harm):
    path = tmp_path / NAME
    lines = path.read_bytes().split(b"\n")
    lines[2] = {
        "flipped": lines[2][:5] + b"\xff" + lines[2][6:],
        "zeros": b"\0" * len(lines[2]),
        "gone": b"",
        "twice": lines[1],
        "text": b"[3]",
    }[harm]
    damaged = b"\n".join(lines)
    path.write_bytes(damaged)
    rows = Rows(tmp_path, killed, messages.append)
    assert len(messages) == 1
    assert (tmp_path / f"{NAME}.damaged").read_bytes() == damaged
    fill(rows, 6, 8)  # Whatever was kept of these is replaced.
    assert steps(tmp_path) == [1, 2, 4, 5, 6, 7, 8]
    mark = rows.mark()
    rows.close()
    Rows(tmp_path, mark, messages.append).close()
    assert len(messages) == 1


@pytest.mark.parametrize("wrong", [51, 1, 4])
def test_a_wrong_iteration_costs_one_row(tmp_path, messages, wrong):
    rows = Rows(tmp_path)
    fill(rows, 1, 20)
    mark = rows.mark()
    rows.close()
    path = tmp_path / NAME
    damaged = path.read_bytes().replace(b'"iteration": 11,', b'"iteration": %d,' % wrong)
    path.write_bytes(damaged)
    Rows(tmp_path, mark, messages.append).close()
    assert steps(tmp_path) == [*range(1, 11), *range(12, 21)]
    assert (
        "19 of the checkpoint's 20 rows are whole and kept; the file as it was is metrics.jsonl.damaged" in messages[0]
    )
    assert (tmp_path / f"{NAME}.damaged").read_bytes() == damaged


def test_what_is_dropped_is_kept_every_time(tmp_path, killed, messages):
    path = tmp_path / NAME
    for number in ("", ".2", ".3"):
        path.write_bytes(b"".join(path.read_bytes().splitlines(keepends=True)[:4]) + b"\0" * 20 + b"\n")
        damaged = path.read_bytes()
        Rows(tmp_path, killed, messages.append).close()
        assert path.read_bytes() == damaged[:-21]
        assert (tmp_path / f"{NAME}.damaged{number}").read_bytes() == damaged


@pytest.mark.parametrize("kind", ["link", "fifo", "directory"])
def test_only_a_plain_file_is_opened(tmp_path, kind):
    outside, path = tmp_path / "outside", tmp_path / NAME
    outside.write_text("1\n")
    if kind == "link":
        path.symlink_to(outside)
    elif kind == "fifo":
        os.mkfifo(path)
    else:
        path.mkdir()
    for touch in (Rows, lambda folder: refuse_locked(folder / NAME), read_metrics):
        with pytest.raises(UserError, match=r"metrics\.jsonl: is a .*, must be a plain file"):
            touch(tmp_path)
    assert outside.read_text() == "1\n"


def test_a_lock_is_never_that_of_a_file_that_was_replaced(tmp_path, monkeypatch):
    path, flock = tmp_path / NAME, fcntl.flock
    path.write_text("old")

    def replaced(file, how):
        monkeypatch.setattr(fcntl, "flock", flock)
        (tmp_path / "new").write_text("new")
        os.replace(tmp_path / "new", path)
        flock(file, how)

    monkeypatch.setattr(fcntl, "flock", replaced)
    with lock(path) as file:
        assert os.path.samestat(os.fstat(file.fileno()), os.stat(path))


def test_a_number_that_changed_is_found(tmp_path, killed, messages):
    path = tmp_path / NAME
    path.write_bytes(path.read_bytes().replace(b"0.6666", b"0.7666", 1))
    Rows(tmp_path, killed, messages.append).close()
    assert len(messages) == 1


def test_a_disk_that_is_full_takes_no_part_of_a_row(tmp_path, monkeypatch):
    rows = Rows(tmp_path)
    fill(rows, 1, 2)
    file, calls = rows._file, []

    class Full:
        def write(self, data):
            calls.append(data)
            if len(calls) == 2:
                raise OSError(errno.ENOSPC, "No space left on device")
            return file.write(data[:7])

        def __getattr__(self, name):
            return getattr(file, name)

    rows._file = Full()
    with pytest.raises(OSError, match="No space"):
        fill(rows, 3, 3)
    assert len(calls) == 2
    assert steps(tmp_path) == [1, 2]
    assert (tmp_path / NAME).read_bytes().endswith(b"\n")
    rows._file = file
    fill(rows, 3, 3)
    assert steps(tmp_path) == [1, 2, 3]


def test_only_one_process_writes(tmp_path):
    rows = Rows(tmp_path)
    with pytest.raises(UserError, match=r"metrics\.jsonl: another process is writing it"):
        Rows(tmp_path)
    assert is_locked(rows.path)
    rows.close()
    assert not is_locked(rows.path)
    Rows(tmp_path).close()
    assert not is_locked(tmp_path / "missing")
