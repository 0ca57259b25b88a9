"""robot-rl bench runtime: what it measures, over each transport, with which robot. Its figures are the machine's."""

import json

import pytest

from robot_rl.cli.main import main


@pytest.mark.long
def test_it_measures_each_transport_with_a_network_of_the_same_size(rt, tmp_path, capsys):
    out = tmp_path / "bench.json"
    transports = ["udp", "shm", *(["dds"] if rt.has_dds() else [])]
    assert main(["bench", "runtime", "seconds=0.3", "kills=1", f"out={out}"]) == 0
    result = json.loads(out.read_text())
    assert (result["inference"]["observation_size"], result["inference"]["action_size"]) == (98, 29)
    for name in transports:
        block = result[name]
        assert block["robot"] == ("unitree_g1" if name == "dds" else "synthetic")
        assert block["states"] == 150
        assert 0 < block["answered"] <= 1
        for figures in (block.get("at_robot", block), block["in_binary"]):
            assert 0 < figures["p50"] <= figures["p99"] <= figures["p99.9"] <= figures["max"]
    assert result["kill"]["damped"] == 1
    shown = capsys.readouterr().out
    assert all(word in shown for word in ("inference p50", "kill -9", *(name for name in transports if name != "shm")))


def test_a_policy_of_a_unitree_robot_is_measured_over_dds_itself(rt, go2_bundle, cartpole_bundle, tmp_path):
    from robot_rl_deploy.bundle import read_bundle

    from robot_rl.cli.bench import _for_dds

    assert _for_dds(go2_bundle, tmp_path) == go2_bundle
    made_up = read_bundle(_for_dds(cartpole_bundle, tmp_path)).contract
    assert (made_up.robot, len(made_up.joints), made_up.layout.observation_size) == ("unitree_g1", 29, 98)
    assert set(made_up.joint_names) == {name for name in rt.unitree_motors("unitree_g1") if name}
