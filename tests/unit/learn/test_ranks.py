"""Several processes that train together: real ones, over the loopback, compared with a single one with all worlds."""

import json
import os
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from robot_rl.errors import UserError
from robot_rl.learn.ranks import SINGLE_PROCESS, find_local_rank, find_rank, make_process_group
from robot_rl.sim2sim.link import free_ports

WORKER = Path(__file__).parent / "rank_worker.py"
CASES = (
    "equal",
    "quarantined",
    "mirrored",
    "distilled",
    "taught",
    "by_itself",
    "minibatches",
    "resumed",
    "broken",
    "stopped",
    "refused",
    "lost",
)
ALONE_CASES = ("equal", "quarantined", "mirrored", "distilled")


def start(start_python, directory, size, cases):
    port = free_ports(1)[0]
    shared = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "GLOO_SOCKET_IFNAME": "lo", "OMP_NUM_THREADS": "1"}
    surroundings = {**os.environ, **shared, "WORLD_SIZE": str(size)}
    return [start_python([WORKER, directory, *cases], env={**surroundings, "RANK": str(rank)}) for rank in range(size)]


@pytest.fixture(scope="module")
def trained(start_python, tmp_path_factory):
    """The directory of what two processes, and one with the worlds of both, wrote down."""
    directory = tmp_path_factory.mktemp("ranks")
    running = [*start(start_python, directory, 2, CASES), *start(start_python, directory, 1, ALONE_CASES)]
    for process in running:
        output, _ = process.communicate(timeout=300)
        assert process.returncode == 0, output
    return directory


def tensors(directory, case, size, rank=0):
    return load_file(directory / f"{case}-{size}-{rank}.safetensors")


def rows(directory, case, size=2):
    return [json.loads((directory / f"results-{size}-{rank}.json").read_text())[case] for rank in range(size)]


def learned(state):
    """What the networks hold that learning changes."""
    return {name: tensor for name, tensor in state.items() if name.startswith(("actor.", "critic."))}


def distance(directory, case, other="equal"):
    """Greatest difference of a weight or statistic between two processes' case and the single one's."""
    one, two = learned(tensors(directory, other, 1)), learned(tensors(directory, case, 2))
    assert one.keys() == two.keys()
    return max(float((one[name].double() - two[name].double()).abs().max()) for name in one)


@pytest.mark.long
@pytest.mark.parametrize("case", ALONE_CASES)
def test_two_processes_are_one_with_the_worlds_of_both(trained, case):
    """Equal but for rounding, quarantined samples and mirrored ones included; also the rate, which adapts."""
    assert distance(trained, case, case) < 5e-6
    one, two = tensors(trained, case, 1), tensors(trained, case, 2)
    assert float(one["optimizer.learning_rate"]) == pytest.approx(float(two["optimizer.learning_rate"]), rel=1e-6)
    assert int(one["actor.normalizer.count"]) == int(two["actor.normalizer.count"])
    (alone,) = rows(trained, case, 1)
    for row in rows(trained, case):
        counts = {name: row.pop(name) for name in ("ranks", "num_envs", "batch")}
        assert counts == {"ranks": 2, "num_envs": 32, "batch": row["env_steps"] / row["iteration"]}
        assert row == pytest.approx(alone, rel=1e-3, abs=1e-5)


@pytest.mark.long
def test_advantages_normalized_by_each_process_alone_would_show(trained):
    assert distance(trained, "by_itself") > 1e-2


@pytest.mark.long
@pytest.mark.parametrize("case", ["equal", "mirrored", "distilled", "taught", "minibatches"])
def test_the_copies_of_the_networks_stay_equal_to_the_bit(trained, case):
    first, second = (tensors(trained, case, 2, rank) for rank in (0, 1))
    own = {"random.noise", "random.order", "noise", "auxiliary.teacher.random", "follows"}
    assert all(torch.equal(first[name], second[name]) for name in first.keys() - own)
    assert rows(trained, case)[0] == rows(trained, case)[1]


@pytest.mark.long
def test_processes_draw_actions_and_minibatches_of_their_own(trained):
    first, second = (tensors(trained, "minibatches", 2, rank) for rank in (0, 1))
    for name in ("noise", "random.noise", "random.order"):
        assert not torch.equal(first[name], second[name])
    correlation = torch.corrcoef(torch.stack((first["noise"].flatten(), second["noise"].flatten())))[0, 1]
    assert abs(float(correlation)) < 0.25


@pytest.mark.long
def test_a_student_of_several_processes_learns_and_is_resumed_to_the_bit(trained):
    """The worlds that follow the teacher are drawn by each process for itself."""
    for row in rows(trained, "taught"):
        assert (row["same"], row["teacher/share"]) == (1.0, 0.25)  # As the second of two iterations left it.
    (one,) = rows(trained, "distilled", 1)
    assert one["loss/imitation"] > 0.0
    first, second = (tensors(trained, "taught", 2, rank) for rank in (0, 1))
    assert not torch.equal(first["auxiliary.teacher.random"], second["auxiliary.teacher.random"])


@pytest.mark.long
def test_a_resumed_run_is_the_run(trained):
    """Each process's worlds, memories and random numbers among it: they are in a file of its own."""
    for row in rows(trained, "resumed"):
        assert (row["same"], row["remembered"]) == (1.0, 3)
        assert row["files"] == ["env.rank1.safetensors", "env.safetensors", "meta.json", "model.safetensors"]


@pytest.mark.long
def test_only_the_first_process_writes(trained):
    lines = [json.loads(line) for line in (trained / "run" / "metrics.jsonl").read_text().splitlines()]
    assert [line["iteration"] for line in lines] == [1, 2, 3]
    assert [line["env_steps"] for line in lines] == [192, 384, 576]
    assert {path.name for path in (trained / "run" / "checkpoints").iterdir()} == {"000002", "000003"}
    assert len(list((trained / "run" / "tb").iterdir())) <= 2  # A file for each of the two calls.


@pytest.mark.long
def test_a_loss_that_is_not_finite_in_one_process_ends_all(trained):
    for row in rows(trained, "broken"):
        assert row["iteration"] == 1
        assert row["error"].startswith("FloatingPointError: the loss is not finite in iteration 2")
        assert row["error"].endswith("not finite: the rollout's rewards in process 1")
    assert not (trained / "broken" / "checkpoints").exists()


@pytest.mark.long
def test_a_stop_of_one_process_stops_all_after_the_same_iteration(trained):
    for row in rows(trained, "stopped"):
        assert row == {"error": "Interrupted: interrupted by SIGUSR1 after iteration 2", "saved": "True"}


@pytest.mark.long
def test_messages(trained):
    first, second = rows(trained, "refused")
    assert first["error"] == "UserError: root=/x: cannot make it"
    assert second["error"] == "PeerError: ended with process 0 (UserError: root=/x: cannot make it)"
    for row in (first, second):
        assert row["divided"].startswith("UserError: num_envs=33: must be a multiple of the 2 processes")
        assert (row["answer"], row["everyone"], row["any"]) == ("there", 1, [True, False])


@pytest.mark.long
def test_a_process_that_loses_the_others_reports_it_in_one_line(trained):
    assert (trained / "lost.txt").read_text().startswith("PeerError: process 0 of 2 lost the others (")
    assert len((trained / "lost.txt").read_text().splitlines()) == 1


def test_one_process_talks_to_nobody():
    assert make_process_group("cpu", {}) is SINGLE_PROCESS
    assert make_process_group("cpu", {"RANK": "0", "WORLD_SIZE": "1"}) is SINGLE_PROCESS
    x = torch.tensor([1.0])
    assert (SINGLE_PROCESS.sum_(x) is x, SINGLE_PROCESS.mean_(x) is x) == (True, True)
    assert (SINGLE_PROCESS.gather(3), SINGLE_PROCESS.any([True, False]), SINGLE_PROCESS.first(lambda: 4)) == (
        [3],
        [True, False],
        4,
    )
    assert (SINGLE_PROCESS.seed(8), SINGLE_PROCESS.share(7, "num_envs"), SINGLE_PROCESS.is_first) == (8, 7, True)


def test_ranks_from_torchrun():
    environ = {"RANK": "5", "WORLD_SIZE": "8", "LOCAL_RANK": "1", "LOCAL_WORLD_SIZE": "4"}
    assert (find_rank(environ), find_local_rank(environ)) == ((5, 8), (1, 4))
    assert find_local_rank({"LOCAL_RANK": "1"}) == (0, 1)


@pytest.mark.parametrize(
    ("environ", "message"),
    [
        ({"RANK": "2", "WORLD_SIZE": "2"}, r"RANK=2, WORLD_SIZE=2: must be 0 <= RANK < WORLD_SIZE"),
        ({"RANK": "one", "WORLD_SIZE": "2"}, "RANK=one: must be a whole number"),
        ({"RANK": "0", "WORLD_SIZE": "0"}, "WORLD_SIZE=0"),
        ({"RANK": "0", "WORLD_SIZE": "2"}, "RANK=0, WORLD_SIZE=2: .*MASTER_ADDR.*; torchrun sets all of them"),
    ],
)
def test_what_does_not_fit_together(environ, message):
    with pytest.raises(UserError, match=message):
        make_process_group("cpu", environ)
