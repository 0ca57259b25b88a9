"""The committed fingerprints of policies, settings and kernels are what the code makes.

Where one changed on purpose: `python benchmarks/nets.py update=true`.
"""

import pytest
from fingerprints import GOLDEN_KERNELS, PARTS, fingerprint, make_texts, settings_texts
from nets import compare_fingerprints, compare_kernels, read_fingerprints

PRINTED = ("cartpole", "go2_team")
"""Tasks of which the settings are also printed; Hydra takes a fifth of a second for each."""


@pytest.fixture(scope="module")
def texts():
    return {part: make_texts(part) for part in PARTS if part != "settings"}


@pytest.mark.parametrize("part", [part for part in PARTS if part != "settings"])
def test_fingerprints_are_the_committed_ones(texts, part):
    assert read_fingerprints(part)
    assert compare_fingerprints(part, texts[part]) == []


def test_printed_settings_are_the_committed_ones():
    kept = read_fingerprints("settings")
    assert {name: fingerprint(text) == kept[name] for name, text in settings_texts(PRINTED).items()} == {
        f"settings/{task}": True for task in PRINTED
    }


def test_what_differs_is_named(texts):
    runs = dict(texts["runs"])
    runs["run/cartpole"] += "more"
    runs["run/mine"] = runs.pop("run/go2_flat")
    assert compare_fingerprints("runs", runs) == ["run/go2_flat: is gone", "run/mine: is new", "run/cartpole: differs"]


def test_the_first_line_of_a_kernel_that_differs_is_shown(texts):
    kernels = dict(texts["kernels"])
    first, second = GOLDEN_KERNELS[:2]
    kernels[f"kernels/{first}"] = kernels[f"kernels/{first}"].replace("\n", "\nx", 1)
    kernels[f"kernels/{second}"] += "more\n"
    found = compare_kernels(kernels)
    assert found[0].startswith(f"tests/data/kernels/{first}.txt:2: ")
    assert found[1].startswith(f"tests/data/kernels/{second}.txt: has ")
    assert len(found) == 2
