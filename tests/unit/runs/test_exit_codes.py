"""Exit codes of several processes, for launchers that only know 0."""

import pytest

from robot_rl.cluster.launchers import exit_codes


@pytest.mark.parametrize(
    ("codes", "right"),
    [
        ([], 0),
        ([0, 0], 0),
        ([0, 1], 1),
        ([85, 85], 85),
        ([1, 2], 2),
        ([85, 1], 85),
        ([0, 137], 137),
        ([130, 85], 130),
        ([86, 1, 1], 86),
    ],
)
def test_the_code_of_several_is_that_of_the_one_that_knows_why(codes, right):
    assert exit_codes.combine(codes) == right


def test_without_a_directory_a_code_is_itself():
    assert exit_codes.end(85, {}) == 85


def test_a_final_code_is_written_and_ends_with_0(tmp_path):
    first = {exit_codes.VARIABLE: str(tmp_path), "RANK": "0"}
    second = first | {"RANK": "1"}
    assert exit_codes.end(1, second) == 1  # It lost the others: all are to start again.
    assert exit_codes.end(2, first) == 0
    assert exit_codes.end(1, second) == 0  # By now it is known that they would not get further.
    assert exit_codes.read(tmp_path) == [2, 1]
    exit_codes.begin(first)
    assert exit_codes.read(tmp_path) == [1]
