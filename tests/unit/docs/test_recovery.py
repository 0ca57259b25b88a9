"""docs/recovery.md: its exit codes are those of the program."""

import re
from pathlib import Path

from robot_rl.errors import ExitCode

TEXT = (Path(__file__).parents[3] / "docs" / "recovery.md").read_text()


def test_the_table_of_exit_codes_is_the_programs():
    table = TEXT.partition("## Exit codes")[2].partition("\n## ")[0]
    codes = [int(code) for row in re.findall(r"^\| ([\d, ]+) \|", table, re.MULTILINE) for code in row.split(",")]
    assert codes == [*sorted(ExitCode), 143, 138, 140]
