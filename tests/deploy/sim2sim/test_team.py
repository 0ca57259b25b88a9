"""Two robots, each with a binary of its own; one loses its binary, and the other goes on."""

import contextlib
from pathlib import Path

import pytest
import robot_rl_tasks
from robot_rl_tasks.registry import get_task

from robot_rl.sim2sim.session import Kill, Session, SessionCfg
from tests.deploy.sim2sim.conftest import LENIENT, NO_REALTIME

POLICY = Path(robot_rl_tasks.__file__).parent / "go2_pair_carry" / "policy"


@pytest.fixture
def team_session(tmp_path):
    """run(**options): the report of a session."""

    def run(**options):
        cfg = SessionCfg(seed=5, settings=LENIENT, arguments=NO_REALTIME, **options)
        bundles = dict.fromkeys(("front", "rear"), POLICY)
        with contextlib.closing(Session(get_task("go2_pair_carry"), bundles, cfg, tmp_path)) as session:
            session.run()
            return session.report()

    return run


@pytest.mark.parametrize("transport", ["udp", "shm", "dds"])
def test_two_robots_carry_a_board(team_session, rt, transport):
    if transport == "dds" and not rt.has_dds():
        pytest.skip("this build speaks no DDS")
    report = team_session(seconds=2.0, transport=transport)
    for robot in report["robots"].values():
        assert (robot["faults"], robot["killed"]) == ([], False)
        assert robot["policy_s"] >= 1.9
        assert robot["metrics"]["place_error"]["mean"] < 0.15
        assert robot["binary"]["fault"] in ("none", "operator_stop")


def test_a_robot_whose_binary_is_killed_damps_and_the_other_goes_on(team_session):
    report = team_session(seconds=2.5, kills=(Kill("rear", 1.0),))
    front, rear = report["robots"]["front"], report["robots"]["rear"]
    assert (rear["killed"], front["killed"]) == (True, False)
    assert [fault["fault"] for fault in rear["faults"]] == ["internal"]
    assert 1.0 <= rear["faults"][0]["policy_s"] < 1.3
    assert rear["phases"][-1]["phase"] == "DAMPING"
    assert front["faults"] == []
    assert front["policy_s"] >= 2.4
    assert front["phases"][-1]["phase"] == "POLICY"
