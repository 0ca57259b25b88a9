"""Times and memory as users write them."""

import pytest

from robot_rl.cluster.manifests.quantities import read_mebibytes, read_seconds
from robot_rl.errors import UserError


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("", 0),
        ("90", 5400),
        ("1:30", 90),
        ("04:00:00", 14_400),
        ("2-12", 216_000),
        ("1-0:30", 88_200),
        ("1-0:0:5", 86_405),
    ],
)
def test_times_are_those_of_slurm(text, seconds):
    assert read_seconds(text) == seconds


@pytest.mark.parametrize("text", ["0", "-1", "1h", "1:60", "1-24", "400-0", "٣", "1 ", "9" * 30])
def test_other_times_are_refused(text):
    with pytest.raises(UserError, match="time="):
        read_seconds(text)


@pytest.mark.parametrize(
    ("text", "mebibytes"), [("", 0), ("512M", 512), ("16G", 16_384), ("16Gi", 16_384), ("1T", 1024**2)]
)
def test_memory_is_counted_in_powers_of_1024(text, mebibytes):
    assert read_mebibytes(text) == mebibytes


@pytest.mark.parametrize("text", ["16", "16GB", "0G", "1.5G", "100T", "-1G", "g"])
def test_other_amounts_are_refused(text):
    with pytest.raises(UserError, match="memory="):
        read_mebibytes(text)
