"""The scripts of benchmarks/ are imported by their file names, as they import each other."""

import stat
import sys
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).parents[3] / "benchmarks"))

# A rival that answers as the worker does; the first configuration is quickest at 4 worlds, the others at 2.
FAKE = """
import json, sys
made = {}
for line in sys.stdin:
    request = json.loads(line)
    name, do = request["name"], request["do"]
    if do == "make":
        made[name] = request["num_envs"]
        answer = {"num_envs": request["num_envs"], "cone": request["sim"].get("mujoco.cone", "elliptic")}
    elif do == "block":
        assert name in made
        slow = made[name] if name.endswith("default") else made[name] ** 3
        answer = {"seconds": request["steps"] * slow / (made[name] + 1) / 10}
    else:
        answer = {"contacts_per_world": 2.0}
    print(json.dumps(answer), flush=True)
"""


@pytest.fixture
def interpreter(tmp_path):
    """interpreter(script=FAKE): an executable that runs a script whatever its arguments are."""

    def make(script=FAKE):
        (tmp_path / "fake.py").write_text(script)
        path = tmp_path / "python"
        path.write_text(f"#!/bin/sh\nexec {sys.executable} {tmp_path / 'fake.py'}\n")
        path.chmod(path.stat().st_mode | stat.S_IXUSR)
        return path

    return make
