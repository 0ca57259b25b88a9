"""The binary over shared memory and DDS: standing, walking, no allocations, a stop by the remote control."""

import importlib.util
import json
import os
import signal
import subprocess
import uuid
from pathlib import Path

import pytest
import robot_rl_runtime as rt

_spec = importlib.util.spec_from_file_location(
    "shared_loop_conftest", Path(__file__).parents[1] / "loop" / "conftest.py"
)
loop = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(loop)
start, report = loop.start, loop.report


@pytest.fixture(params=["shm", "dds"])
def robot(request, rt, go2_bundle):
    """A Go2 at an address of either kind."""
    if request.param == "dds" and not rt.has_dds() and os.environ.get("ROBOT_RL_REQUIRE_ALL") != "1":
        pytest.skip("built without CycloneDDS")
    domain = 1 + (os.getpid() + 100) % 200
    addresses = {"shm": f"shm:binary-{uuid.uuid4().hex[:8]}", "dds": f"dds:unitree_go?domain={domain}"}
    contract = json.loads((go2_bundle / "contract.json").read_text())
    with loop.Robot(rt, addresses[request.param], contract) as robot:
        robot.address = addresses[request.param]
        yield robot


def test_it_stands_and_walks_and_allocates_nothing(robot, start, report):
    process = start("--seconds", "1.0")
    _, said = process.communicate(timeout=60)
    assert process.returncode == 0, said
    got = report()
    assert [change["phase"] for change in got["changes"]] == ["DAMPING", "STAND", "POLICY", "DAMPING"], said
    assert got["changes"][-1]["fault"] == "operator_stop"  # nobody else was taken for a commander
    answers = [command for command in robot.commands if command.from_policy]
    assert answers
    assert all(command.state_sequence > 0 for command in answers)
    for thread in got["threads"].values():
        assert thread["allocations"] == 0
        assert thread["major_faults"] == 0
    # CycloneDDS calls malloc for each message, in threads that the two do not wait for.
    commands = got["loop"]["policy_commands"] + got["loop"]["writer_commands"]
    allocations = got["transport_counters"]["allocations"]
    assert allocations >= commands if robot.address.startswith("dds") else allocations == 0
    print(json.dumps({"transport": robot.address, "threads": got["threads"], "latencies": got["latencies"]}))


def test_a_killed_binary_leaves_damping(robot, start):
    process = start()
    last = robot.wait_for(lambda command: command.phase == "POLICY" and command.from_policy)
    watchdog = int(Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text())
    since = len(robot.commands)
    process.kill()
    process.wait()
    damped = robot.wait_for(lambda command: command.phase == "DAMPING", since=since)
    assert damped.kp == 0
    assert damped.kd > 0
    assert damped.sequence > last.sequence
    os.kill(watchdog, signal.SIGKILL)  # it would go on for 10 s


HANGING = """
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdatomic.h>
#include <unistd.h>
int dds_write(int writer, const void* data) {
  static atomic_int calls;
  for (; atomic_fetch_add(&calls, 1) > 1500;) pause();
  return ((int (*)(int, const void*))dlsym(RTLD_NEXT, "dds_write"))(writer, data);
}
"""


@pytest.mark.parametrize("robot", ["dds"], indirect=True)
def test_the_watchdog_takes_over_if_the_library_hangs(robot, start, binary_env, monkeypatch, tmp_path):
    """The loop hands its commands over, and a heartbeat must not go on without them."""
    (tmp_path / "hanging.c").write_text(HANGING)
    library = tmp_path / "hanging.so"
    subprocess.run(["gcc", "-shared", "-fPIC", tmp_path / "hanging.c", "-o", library], check=True)
    monkeypatch.setitem(binary_env, "LD_PRELOAD", str(library))
    process = start(watchdog_s=0.1)
    robot.wait_for(lambda command: command.phase == "POLICY" and command.from_policy)
    assert robot.wait_for(lambda command: command.phase == "DAMPING", since=50).fault == "STALLED"
    watchdog = int(Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text())
    process.kill()
    process.wait()
    os.kill(watchdog, signal.SIGKILL)


def test_the_robot_hands_the_operator_on(robot, start):
    """Over DDS that is the remote control in the robot's states, over shared memory a frame."""
    process = start(operator="robot", settings={"limits.operator_s": 5})
    message = rt.OperatorInput()
    message.size = 3

    def change(_):
        message.sequence += 1
        robot.end.send_operator(message, 9)

    robot.change = change
    for request, phase in ((rt.Request.STAND, "STAND"), (rt.Request.POLICY, "POLICY"), (rt.Request.DAMP, "DAMPING")):
        since = len(robot.commands)
        message.request = request
        robot.wait_for(lambda command, phase=phase: command.phase == phase, since=since)
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=60)
