"""The log as another process reads it while it grows: every whole record, once, and in order."""

import os
import shutil

import numpy as np
import pytest

TOPICS = {"/state", "/operator", "/policy", "/command", "/event"}


def same(event, topic, message):
    """Whether an event of the tail has a message's content."""
    assert event.pop("topic") == topic
    event.pop("bundle", None)
    message = {name: value for name, value in message.items() if name != "height_scan"}  # Empty; of earlier robots.
    assert list(event) == list(message)
    for name, value in message.items():
        if isinstance(value, list):
            np.testing.assert_array_equal(event[name], np.array(value, event[name].dtype))
        else:
            assert event[name] == value


@pytest.fixture
def read(shared):
    return shared("deploy/log_messages.py").messages


def test_steps_are_seen_while_the_binary_runs(rt, first, serve, read, tmp_path):
    log = tmp_path / "run.mcap"
    tail = rt.LogTail(log)
    assert (tail.read(), tail.finished, tail.run, tail.contract) == ([], False, {}, "")
    served = serve(first, "--log", log)
    events = served.until(tail.read)
    seen = [len(events)]
    while len(seen) < 4:
        more = served.until(tail.read)
        events += more
        seen.append(len(more))
    assert served.binary.alive
    assert not tail.finished
    assert tail.run["robot"] == "synthetic"
    assert tail.contract == (first / "contract.json").read_text()
    served.end()
    events += tail.read()
    assert tail.finished
    assert tail.read() == []
    rows = read(log)
    assert len(events) == len(rows)
    assert {event["topic"] for event in events} == TOPICS
    for event, (topic, message, _) in zip(events, rows, strict=True):
        same(event, topic, message)


def test_a_swap_names_the_bundle(rt, first, second, serve, tmp_path):
    folder = tmp_path / "follow"
    folder.mkdir()
    log = tmp_path / "run.mcap"
    tail, served, events = rt.LogTail(log), serve(first, "--follow", folder, "--log", log), []
    (folder / "part").write_text(f"{second}\n")
    os.rename(folder / "part", folder / "next")

    def swapped():
        events.extend(tail.read(topics=("/policy", "/event")))
        return [event for event in events if event.get("bundle")]

    (swap,) = served.until(swapped)
    assert (swap["kind"], swap["bundle"]) == (7, rt.read_bundle(second).identity)
    after = events[events.index(swap) + 1]
    assert (after["topic"], after["order"]) == ("/policy", swap["order"] + 1)
    assert {event["topic"] for event in events} == {"/policy", "/event"}
    assert after["step"] == served.end()["bundles"][1]["first_step"]


@pytest.fixture
def log(rt, first, serve, tmp_path):
    """The log of a short run."""
    served = serve(first, "--log", tmp_path / "run.mcap")
    served.go(60)
    served.end()
    return tmp_path / "run.mcap"


@pytest.mark.parametrize("seed", range(3))
def test_a_file_that_grows_by_any_pieces_gives_the_same_events(rt, log, tmp_path, seed):
    data, grown, random = log.read_bytes(), tmp_path / "grown.mcap", np.random.default_rng(seed)
    orders = [event["order"] for event in rt.LogTail(log).read()]
    tail, found, at = rt.LogTail(grown), [], 0
    with grown.open("wb", buffering=0) as file:
        while at < len(data):
            size = int(random.choice([1, 7, 100, 3000, 20_000]))
            file.write(data[at : at + size])
            at += size
            found += [event["order"] for event in tail.read()]
    assert found == orders == list(range(len(orders)))
    assert tail.finished


def test_the_events_of_a_killed_run_are_there_and_it_is_not_finished(rt, first, serve, tmp_path):
    log = tmp_path / "run.mcap"
    tail, served = rt.LogTail(log), serve(first, "--log", log)
    served.until(tail.read)
    served.binary.process.kill()
    served.binary.process.wait()
    tail.read()
    assert not tail.finished


def test_no_log_and_a_damaged_one_are_named(rt, log, tmp_path):
    (tmp_path / "noise.mcap").write_bytes(b"no log at all")
    with pytest.raises(rt.UserError, match="not an MCAP file"):
        rt.LogTail(tmp_path / "noise.mcap").read()
    damaged = tmp_path / "damaged.mcap"
    shutil.copy(log, damaged)
    data = bytearray(log.read_bytes())
    data[-20_000] ^= 4
    damaged.write_bytes(bytes(data))
    with pytest.raises(rt.UserError, match="checksum"):
        rt.LogTail(damaged).read()
