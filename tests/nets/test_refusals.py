"""What robot-rl refuses: one line that names the setting, the exit code, and nothing written."""

import json
import subprocess
import sys
from pathlib import Path

from nets import read_refusals, refuse

from robot_rl.cli.main import COMMANDS

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
IN_A_FRESH_PROCESS = """
import json, sys
sys.path.append(sys.argv[1])
from nets import read_refusals, refuse
found = refuse(read_refusals()["light"])
print(json.dumps([found, "torch" in sys.modules]))
"""


def test_the_table_has_every_command():
    words = {row.words.split()[0] for rows in read_refusals().values() for row in rows}
    assert words >= set(COMMANDS)


def test_light_refusals_need_no_torch():
    command = [sys.executable, "-c", IN_A_FRESH_PROCESS, str(BENCHMARKS)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == [[], False]


def test_other_refusals():
    assert refuse(read_refusals()["others"]) == []


def test_a_line_that_is_not_refused_as_it_should_is_reported():
    row = read_refusals()["light"][0]
    assert [line.partition(": ")[2] for line in refuse([row._replace(code=3), row._replace(names="x" * 9)])] == [
        "exit code 2, not 3: robot-rl: unknown command 'trian': did you mean 'train'?",
        "does not name xxxxxxxxx: robot-rl: unknown command 'trian': did you mean 'train'?",
    ]
    assert refuse([row._replace(words="list tasks")])[0].startswith("robot-rl list tasks: exit code 0, not 2")
