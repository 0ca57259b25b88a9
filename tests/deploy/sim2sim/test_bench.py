"""benchmarks/runtime_speed.py: what it measures, over each transport, with which robot."""

import json
import sys

import pytest
from robot_rl_deploy.bundle import read_bundle

from tests.deploy.conftest import ROOT

sys.path.append(str(ROOT / "benchmarks"))
import runtime_speed


@pytest.mark.long
def test_it_measures_each_transport_with_a_network_of_the_same_size(rt, tmp_path, capsys):
    out = tmp_path / "bench.json"
    runtime_speed.main(["seconds=0.3", "kills=1", f"out={out}"])
    result = json.loads(out.read_text())
    assert (result["inference"]["observation_size"], result["inference"]["action_size"]) == (98, 29)
    for name in ("udp", "shm", *(["dds"] if rt.has_dds() else [])):
        block = result[name]
        assert block["robot"] == ("unitree_g1" if name == "dds" else "synthetic")
        assert block["states"] == 150
        assert 0 < block["answered"] <= 1
        for figures in (block.get("at_robot", block), block["in_binary"]):
            assert 0 < figures["p50"] <= figures["p99"] <= figures["p99.9"] <= figures["max"]
    assert result["kill"]["damped"] == 1
    assert "kill -9" in capsys.readouterr().out


def test_a_policy_of_a_unitree_robot_is_measured_over_dds_itself(rt, go2_bundle, cartpole_bundle, tmp_path):
    assert runtime_speed.for_dds(go2_bundle, tmp_path) == go2_bundle
    made_up = read_bundle(runtime_speed.for_dds(cartpole_bundle, tmp_path)).contract
    assert (made_up.robot, len(made_up.joints), made_up.layout.observation_size) == ("unitree_g1", 29, 98)
    assert set(made_up.joint_names) == {name for name in rt.unitree_motors("unitree_g1") if name}
