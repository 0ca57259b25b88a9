"""Two runs are the same run where nothing differs but the time."""

import pytest
import torch
from safetensors.torch import save_file

from robot_rl.drill import differing_rows, differing_tensors


def written(folder, **files):
    folder.mkdir()
    for name, tensors in files.items():
        save_file(tensors, folder / f"{name}.safetensors")
    return folder


def test_checkpoints_of_the_same_bits_do_not_differ(tmp_path):
    tensors = {"a": torch.tensor([1.0, torch.nan]), "b": torch.arange(3)}
    one, other = (written(tmp_path / name, model=tensors, env=tensors) for name in ("one", "other"))
    assert differing_tensors(one, other) == []


@pytest.mark.parametrize(
    ("env", "found"),
    [
        ({"a": torch.tensor([1.0, 2.0000002])}, ["env.safetensors: a"]),
        ({"a": torch.tensor([1.0, 2.0]).double()}, ["env.safetensors: a"]),
        ({"a": torch.tensor([[1.0, 2.0]])}, ["env.safetensors: a"]),
        ({"b": torch.tensor([1.0, 2.0])}, ["env.safetensors: a", "env.safetensors: b"]),
    ],
)
def test_what_differs_is_named(tmp_path, env, found):
    same = {"w": torch.ones(2)}
    one = written(tmp_path / "one", model=same, env={"a": torch.tensor([1.0, 2.0])})
    assert differing_tensors(one, written(tmp_path / "other", model=same, env=env)) == found


def test_a_file_that_only_one_has_differs(tmp_path):
    one = written(tmp_path / "one", model={"w": torch.ones(2)}, env={"a": torch.ones(1)})
    other = written(tmp_path / "other", model={"w": torch.ones(2)})
    assert differing_tensors(other, one) == ["env.safetensors: a"]


def test_rows_are_compared_without_their_times():
    rows = [{"iteration": n, "time_s": n / 7, "perf/learn_s": 0.1, "loss/value": 1.0 / n} for n in (1, 2, 3, 4)]
    slow = [{**row, "time_s": 9.0, "perf/learn_s": 0.7} for row in rows]
    assert differing_rows(rows, slow, 0) == []
    slow[3]["loss/value"] = 0.3
    assert differing_rows(rows, slow, 0) == ["iteration 4: loss/value"]
    assert differing_rows(rows[:2], slow, 1) == ["iteration 3: not in both", "iteration 4: not in both"]
    slow[0]["loss/value"] = 5.0
    assert differing_rows(rows[:3], slow[:3], 1) == []
