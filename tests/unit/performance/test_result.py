"""Measurements in turn, and their medians and spreads."""

from robot_rl.performance.result import in_turn, make_result


def test_rounds_in_turn_become_medians_spreads_and_a_ratio():
    clock = iter([99.0, 99.0, 2.0, 1.0, 6.0, 2.0, 4.0, 4.0])
    rows = in_turn("ab", lambda: (next(clock) for _ in "ab"), 3)
    assert rows == {"a": [2.0, 6.0, 4.0], "b": [1.0, 2.0, 4.0]}
    result = make_result("x", rows, unit="s")
    assert [row["value"] for row in result["rows"]] == [4.0, 2.0]
    assert [row["spread"] for row in result["rows"]] == [4.0, 3.0]
    assert result["ratio"] == 2.0
    assert make_result("x", {"a": [5.0]}, unit="s")["rows"][0]["spread"] == 0.0
