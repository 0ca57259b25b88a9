"""New weights while the binary runs: taken between two control steps if they pass every check, else refused."""

import os
import shutil
import zlib

import numpy as np
import pytest
from robot_rl_deploy import synthetic
from robot_rl_deploy.bundle import read_bundle, sign_bundle, write_sums
from robot_rl_deploy.export import export_policy
from robot_rl_deploy.signing import make_key

from tests.unit.deploy.rounded import RoundedActor

SHORT = 12


def ask_for(folder, path):
    """Name the next bundle, by rename."""
    (folder / "part").write_text(f"{path}\n")
    os.rename(folder / "part", folder / "next")


@pytest.fixture
def folder(tmp_path):
    made = tmp_path / "follow"
    made.mkdir()
    return made


def current(folder):
    """What acts: identity, path, first step; None before the first step."""
    if not (folder / "current").exists():
        return None
    identity, path, step = (folder / "current").read_text().rstrip("\n").split(" ")
    return identity, path, int(step)


def identity_of(rt, path):
    return rt.read_bundle(path).identity


def test_another_bundle_takes_over_at_a_step_and_the_memory_goes_on(
    rt, first, second, serve, folder, network, steps, shared, tmp_path
):
    log = tmp_path / "run.mcap"
    names = [identity_of(rt, path) for path in (first, second)]
    served = serve(first, "--follow", folder, "--log", log)
    assert served.until(lambda: current(folder)) == (names[0], str(first), 0)
    shutil.copytree(second, folder / "new")
    ask_for(folder, "new")
    _, path, swap = served.until(lambda: (now := current(folder)) and now[0] == names[1] and now)
    assert path == "new"
    served.go(50)
    report = served.end()
    assert f"bundle {names[1][:SHORT]}, iteration 1 of synthetic, from step {swap} on" in served.said()

    found, nets = steps(log), [network(first), network(second)]
    assert 0 < swap <= len(found) - 50
    state, reset = nets[0].start_state(), [step["step"] for step in found if step["reset"]]
    assert all(step < swap for step in reset)  # nothing was forgotten at the swap
    for step in found:
        if step["reset"]:
            state = nets[0].start_state()
        observation, before = np.array([step["observation"]], np.float32), state
        action, target, state = nets[step["step"] >= swap].run(observation, before)
        np.testing.assert_allclose(step["action"], action[0], atol=1e-5)
        np.testing.assert_allclose(step["target"], target[0], atol=1e-5)
        other = nets[step["step"] < swap].run(observation, before)[0][0]
        assert np.abs(np.array(step["action"]) - other).max() > 1e-3

    rows = shared("deploy/log_messages.py").messages(log)
    at = next(k for k, (_, message, _) in enumerate(rows) if message.get("kind") == 7)
    assert rows[at][1]["text"] == f"from here on the policy of bundle {names[1]}"
    assert (rows[at + 1][0], rows[at + 1][1]["step"], rows[at + 1][1]["order"]) == (
        "/policy",
        swap,
        rows[at][1]["order"] + 1,
    )
    taken = report["bundles"]
    assert [one["identity"] for one in taken] == names
    assert [one["first_step"] for one in taken] == [0, swap]
    assert [one["refused"] for one in taken] == ["", ""]
    assert taken[0]["time_s"] < taken[1]["time_s"] < report["seconds"]
    assert not (folder / "refused").exists()


@pytest.mark.parametrize("std", [0.0, 0.2])
def test_a_log_with_swaps_is_replayed_bit_for_bit(rt, first, second, serve, folder, infer, tmp_path, std):
    log, third = tmp_path / "run.mcap", tmp_path / "third"
    shutil.copytree(first, third)
    served = serve(first, "--follow", folder, "--log", log, explore_std=std)
    for path in (second, third):
        ask_for(folder, path)
        served.until(lambda path=path: (current(folder) or ("", ""))[1] == str(path))
        served.go(20)
    served.end()
    result = rt.replay_log(log)
    assert (result["difference"], result["same_backend"], result["action_difference"]) == ("", True, 0.0)
    assert result["cut"] is False
    ended = infer("--replay", log)
    assert ended.returncode == 0, ended.stderr
    assert "every command reproduced bit for bit" in ended.stdout


def test_the_networks_in_a_log_are_those_that_acted(rt, first, second, serve, folder, tmp_path):
    reader = pytest.importorskip("mcap.reader")
    log = tmp_path / "run.mcap"
    served = serve(first, "--follow", folder, "--log", log)
    ask_for(folder, second)
    served.until(lambda: (current(folder) or ("", ""))[1] == str(second))
    served.end()
    with log.open("rb") as file:
        kept = {item.name: item.data for item in reader.make_reader(file, validate_crcs=True).iter_attachments()}
    short = identity_of(rt, second)[:SHORT]
    wanted = {name: (first / name).read_bytes() for name in ("contract.json", "policy.onnx")}
    wanted |= {f"{name}.{short}": (second / name).read_bytes() for name in ("contract.json", "policy.onnx")}
    assert kept == wanted


def test_a_log_without_the_network_of_a_swap_is_refused(rt, first, second, serve, folder, tmp_path):
    log = tmp_path / "run.mcap"
    served = serve(first, "--follow", folder, "--log", log)
    ask_for(folder, second)
    served.until(lambda: (current(folder) or ("", ""))[1] == str(second))
    served.end()
    short = identity_of(rt, second)[:SHORT].encode()
    data, name = bytearray(log.read_bytes()), b"policy.onnx." + short
    begin = data.index(name) - 20  # of the attachment's content: two times, the name's length
    length = int.from_bytes(data[begin - 8 : begin], "little")
    data[begin + 20 : begin + 20 + len(name)] = b"policy.onnx." + b"0" * SHORT
    data[begin + length - 4 : begin + length] = zlib.crc32(bytes(data[begin : begin + length - 4])).to_bytes(
        4, "little"
    )
    log.write_bytes(bytes(data))
    difference = rt.replay_log(log)["difference"]
    assert difference.endswith(f"the policy of bundle {short.decode()} takes over, and the log lacks its files")


def damaged(path):
    data = bytearray((path / "policy.onnx").read_bytes())
    data[len(data) // 2] ^= 1
    (path / "policy.onnx").write_bytes(bytes(data))


def forged(path):
    with np.load(path / "golden.npz") as file:
        arrays = dict(file)
    arrays["action"] = arrays["action"] + np.float32(0.01)
    np.savez(path / "golden.npz", **arrays)
    write_sums(path)


def test_what_fails_a_check_is_refused_and_the_old_one_goes_on(
    rt, first, second, write, serve, folder, steps, tmp_path
):
    wrong = {
        "damaged": (damaged, "policy.onnx does not have the hash that SHA256SUMS gives"),
        "forged": (forged, "golden replay: "),
    }
    cases = {}
    for name, (change, line) in wrong.items():
        shutil.copytree(second, tmp_path / name)
        change(tmp_path / name)
        cases[str(tmp_path / name)] = line
    cases[str(write("robot", memory=8, robot="other"))] = "its contract is another one: robot is 'other', the running"
    cases[str(write("joints", memory=8, joints=5))] = "its contract is another one: joints is a list of 5"
    cases[str(write("memory", memory=4))] = (
        "its contract is another one: layout.state_size is 4, the running policy has 8"
    )
    cases[str(tmp_path / "none")] = "no such directory"
    log, short = tmp_path / "run.mcap", identity_of(rt, first)[:SHORT]
    served = serve(first, "--follow", folder, "--log", log)
    refused = folder / "refused"
    for path, line in cases.items():
        ask_for(folder, path)
        served.until(lambda path=path: refused.exists() and refused.read_text().startswith(f"{path}: "))
        assert line in refused.read_text()
        assert f"refused, {short} stays: " in served.said().splitlines()[-1]
        assert line in served.said().splitlines()[-1]
    assert current(folder)[1] == str(first)
    ask_for(folder, second)  # and a good one is still taken
    swap = served.until(lambda: (now := current(folder)) and now[1] == str(second) and now[2])
    report = served.end()
    assert [one["path"] for one in report["bundles"]] == [str(first), *cases, str(second)]
    assert [one["first_step"] for one in report["bundles"]] == [0, *[None] * len(cases), swap]
    for one, line in zip(report["bundles"][1:], cases.values(), strict=False):
        assert line in one["refused"]
        assert one["time_s"] > 0
    assert all(step["ok"] for step in steps(log))
    assert rt.replay_log(log)["difference"] == ""


def test_more_than_one_line_is_refused(first, serve, folder):
    served = serve(first, "--follow", folder)
    ask_for(folder, "one\ntwo")
    served.until((folder / "refused").exists)
    assert (folder / "refused").read_text() == "one two: next: must be one line with the path of a bundle\n"
    served.end()


def test_with_a_key_only_signed_bundles_follow(rt, first, second, serve, folder, tmp_path):
    make_key(tmp_path / "robot.key")
    copies = [tmp_path / "a", tmp_path / "b"]
    for source, copy in zip((first, second), copies, strict=True):
        shutil.copytree(source, copy)
    sign_bundle(copies[0], tmp_path / "robot.key")
    served = serve(copies[0], "--follow", folder, "--signed-by", tmp_path / "robot.key.pub")
    ask_for(folder, copies[1])
    served.until((folder / "refused").exists)
    assert "SHA256SUMS.sig is missing" in (folder / "refused").read_text()
    sign_bundle(copies[1], tmp_path / "robot.key")
    ask_for(folder, copies[1])
    served.until(lambda: current(folder)[0] == identity_of(rt, copies[1]))
    served.end()


def test_a_bundle_of_the_other_network_widths_is_welcome(rt, first, write, serve, folder):
    """The layers are the network's own affair: the contract does not have them."""
    wide = write("wide", seed=2, memory=8, hidden=(32, 16))
    assert read_bundle(wide).contract.layout == read_bundle(first).contract.layout
    ask_for(folder, wide)  # before the start: taken after the first step
    served = serve(first, "--follow", folder)
    served.until(lambda: (current(folder) or ("", ""))[1] == str(wide))
    assert [one["first_step"] > 0 for one in served.end()["bundles"]] == [False, True]


def test_a_precision_stays_and_its_grids_may_change(serve, folder, tmp_path):
    def write(name, mode, **fields):
        env = synthetic._Env("synthetic", [f"joint_{k:02d}" for k in range(6)], 0, 0)
        actor = RoundedActor(29, 6, mode, **fields)
        export_policy(env, actor, tmp_path / name, run=synthetic.TRAINING, steps=200)
        return tmp_path / name

    first, second = write("first", "int8"), write("second", "int8", seed=1, reach=5.0, error=0.03)
    served = serve(first, "--follow", folder)
    for path, line in (
        (write("bf16", "bf16"), "precision.mode is 'bf16', the running policy has 'int8'"),
        (write("plain", "int8", plain=1), "precision.layers[2].mode is 'fp32', the running policy has 'int8'"),
    ):
        ask_for(folder, path)
        served.until(lambda path=path: (folder / "refused").exists() and str(path) in (folder / "refused").read_text())
        assert f"its contract is another one: {line}" in (folder / "refused").read_text()
    ask_for(folder, second)
    served.until(lambda: (current(folder) or ("", ""))[1] == str(second))
    assert [one["path"] for one in served.end()["bundles"]][-1] == str(second)


def test_a_run_that_follows_nothing_lists_its_bundle(rt, first, serve):
    served = serve(first)
    served.go(5)
    one = served.end()["bundles"]
    assert [(each["identity"], each["first_step"], each["refused"]) for each in one] == [
        (identity_of(rt, first), 0, "")
    ]
