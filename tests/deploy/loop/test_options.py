"""Options and settings of the binary: one line for what is wrong, exit code 2."""

import json
import os
import subprocess

import pytest

WRONG = {
    "unknown option": (["--bundel", "x"], "--bundel is unknown"),
    "no option": (["bundle"], "'bundle' is not an option"),
    "no bundle": ([], "--bundle is missing"),
    "no value": (["--bundle"], "--bundle needs a value: DIR"),
    "empty value": (["--bundle="], "--bundle=: must be a path"),
    "a value too many": (["--check=yes"], "--check takes no value"),
    "two actions": (["--check", "--bench"], "exclude each other; give one of them"),
    "backend": (["--backend", "cuda"], "--backend=cuda: must be one of auto, onnxruntime, tensorrt"),
    "precision": (["--precision", "int8"], "--precision=int8: must be one of auto, fp32, fp16"),
    "seconds": (["--seconds", "-1"], "--seconds=-1: must be a number of seconds from 0"),
    "seconds nan": (["--seconds", "nan"], "--seconds=nan: must be a number"),
    "priority": (["--fifo-writer", "99"], "--fifo-writer=99: must be a whole number from 0 to 98"),
    "cpu": (["--cpu-policy", "one"], "--cpu-policy=one: must be a whole number"),
    "commander": (["--commander", "0"], "--commander=0: must be a number from 1"),
    "setting": (["--set", "limits.tilt=1"], "setting 'limits.tilt' is unknown; the settings are writer_period_s,"),
    "setting without value": (["--set", "stand_s"], "--set=stand_s: must be NAME=VALUE"),
    "setting's range": (["--set", "limits.tilt_rad=7"], "limits.tilt_rad=7: must be a number from 0.01 to 4"),
    "setting's type": (["--set", "limits.missed_deadlines=2.5"], "missed_deadlines=2.5: must be a whole number from 1"),
    "setting no number": (["--set", "stand_s=long"], "stand_s=long: must be a number from 0 to 60"),
    "settings file": (["--settings", "/nowhere.json"], "--settings=/nowhere.json: cannot be read"),
    "watchdog": (
        ["--bundle", "x", "--set", "writer_period_s=0.02"],
        "--watchdog-timeout=0.01: must be at least two writer periods",
    ),
    "transport": (
        ["--bundle", "x", "--transport", "upd:1"],
        "--transport=upd:1: must be udp:HOST:PORT",
    ),
    "a policy without states": (["--bundle", "x", "--transport", "shm:a?states=0"], "remove the option 'states'"),
    "operator": (["--bundle", "x", "--operator", "shm:a"], "--operator=shm:a: must be udp:HOST:PORT, robot or none"),
    "operator's port": (["--bundle", "x", "--operator", "udp:h:0"], "--operator=udp:h:0: must be udp:HOST:PORT"),
    "team listen": (["--bundle", "x", "--team-listen", "shm:a"], "--team-listen=shm:a: must be udp:HOST:PORT"),
    "team send": (["--bundle", "x", "--team-send", "udp:h:1,udp:h:0"], "--team-send=udp:h:0: must be udp:HOST:PORT"),
    "exploration": (["--set", "explore_std=2.5"], "explore_std=2.5: must be a number from 0 to 2"),
    "exploration's seed": (["--set", "explore_seed=-1"], "explore_seed=-1: must be a whole number from 0 to"),
    "exploration's seed is whole": (["--set", "explore_seed=0.5"], "explore_seed=0.5: must be a whole number from 0"),
    "follow": (["--bundle", "x", "--follow", "/no"], "--follow=/no: cannot be used (Not a directory); name a folder"),
    "report": (["--bundle", "x", "--report", "/no/r.json"], "--report=/no/r.json: cannot be written (No such file"),
    "report is a folder": (["--bundle", "x", "--report", "/tmp"], "--report=/tmp: cannot be written (Is a directory)"),
    "lines in a value": (["--backend", "a\nb"], "--backend=a b: must be one of"),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_option_is_one_line(infer, name):
    words, line = WRONG[name]
    ended = infer(*words)
    assert ended.returncode == 2
    assert ended.stdout == ""
    assert ended.stderr.startswith("robot-rl-infer: ")
    assert ended.stderr.count("\n") == 1
    assert line in ended.stderr


def test_help_names_every_option_once(infer):
    ended = infer("--help")
    assert ended.returncode == 0
    for name in ("--bundle", "--transport", "--operator", "--settings", "--set", "--no-watchdog", "--require-realtime"):
        assert f"\n  {name} " in ended.stdout
    assert max(len(line) for line in ended.stdout.splitlines()) <= 120


def test_settings_are_read_and_written_alike(rt):
    given = {"stand_s": 3.5, "steps_per_state": 4, "limits": {"tilt_rad": 0.1, "missed_deadlines": 2}}
    text = rt.settings_json(json.dumps(given))
    got = json.loads(text)
    assert got["stand_s"] == 3.5
    assert got["steps_per_state"] == 4
    assert got["limits"]["tilt_rad"] == 0.1
    assert got["limits"]["velocity_factor"] == json.loads(rt.settings_json())["limits"]["velocity_factor"]
    assert rt.settings_json(text) == text


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("[]", ": must be an object of settings"),
        ('{"limits": 3}', "limits=3: must be an object"),
        ('{"stand_s": "3"}', "stand_s='3': must be a number"),
        ('{"stand_s": null}', "must be a number"),
        ('{"limits": {"limits": {}}}', "setting 'limits.limits' is unknown"),
        ('{"stand_s": 1, "stand_s": 2}', "stand_s"),
        ("{", "settings"),
    ],
)
def test_wrong_settings_are_one_line(rt, text, line):
    with pytest.raises(rt.UserError) as error:
        rt.settings_json(text)
    assert line in str(error.value)
    assert "\n" not in str(error.value)


def test_a_file_of_settings(infer, tmp_path):
    file = tmp_path / "settings.json"
    file.write_text('{"limits": {"tilt_rad": true}}')
    ended = infer("--settings", file)
    assert ended.returncode == 2
    assert ended.stderr == "robot-rl-infer: settings.json: limits.tilt_rad=True: must be a number\n"


def test_set_overrides_a_file_in_any_order(infer, tmp_path):
    file = tmp_path / "settings.json"
    file.write_text('{"writer_period_s": 0.002}')
    slow = ["--set", "writer_period_s=0.02"]
    for words in ([*slow, "--settings", file], ["--settings", file, *slow]):
        ended = infer("--bundle", "x", *words)
        assert "at least two writer periods of 0.02 s" in ended.stderr


def test_a_report_goes_into_a_pipe_and_does_not_take_its_place(infer, go2_bundle, tmp_path):
    pipe = tmp_path / "report"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    assert infer("--bundle", go2_bundle, "--check", "--report", pipe).returncode == 0
    assert json.loads(os.read(reader, 65536))["robot"] == "unitree_go2"
    os.close(reader)
    assert [each.name for each in tmp_path.iterdir()] == ["report"]


def test_a_report_on_a_full_disk_has_its_exit_code(infer, go2_bundle):
    ended = infer("--bundle", go2_bundle, "--check", "--report", "/dev/full")
    assert ended.returncode == 74
    assert ended.stderr == "robot-rl-infer: /dev/full cannot be written: No space left on device\n"


@pytest.mark.parametrize("words", [["--help"], ["--check", "--bundle"]])
def test_what_cannot_be_said_is_no_success(rt, go2_bundle, binary_env, words):
    command = [str(rt.binary()), *words, *([str(go2_bundle)] if words[-1] == "--bundle" else [])]
    with open("/dev/full", "w") as full:
        ended = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, env=binary_env)
    assert ended.returncode == 74
    assert ended.stderr == "robot-rl-infer: what was to be said cannot be written to stdout\n"
