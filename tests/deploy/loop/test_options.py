"""Options and settings of the binary: one line for what is wrong, exit code 2."""

import json

import pytest

WRONG = {
    "unknown option": (["--bundel", "x"], "--bundel is unknown"),
    "no option": (["bundle"], "'bundle' is no option"),
    "no bundle": ([], "--bundle DIR is missing"),
    "no value": (["--bundle"], "--bundle needs a value: DIR"),
    "empty value": (["--bundle="], "--bundle: '' is not a path"),
    "a value too many": (["--check=yes"], "--check takes no value"),
    "two actions": (["--check", "--doctor"], "give one of them, not two"),
    "backend": (["--backend", "cuda"], "--backend: 'cuda' is not one of auto, onnxruntime, tensorrt"),
    "precision": (["--precision", "int8"], "--precision: 'int8' is not one of auto, fp32, fp16"),
    "seconds": (["--seconds", "-1"], "--seconds: '-1' is not a number of seconds from 0"),
    "seconds nan": (["--seconds", "nan"], "--seconds: 'nan' is not a number"),
    "priority": (["--fifo-writer", "99"], "--fifo-writer: '99' is not a whole number from 0 to 98"),
    "cpu": (["--cpu-policy", "one"], "--cpu-policy: 'one' is not a whole number"),
    "commander": (["--commander", "0"], "--commander: '0' is not a number from 1"),
    "setting": (["--set", "limits.tilt=1"], "setting 'limits.tilt' is unknown; there are writer_period_s,"),
    "setting without value": (["--set", "stand_s"], "--set: 'stand_s' is not NAME=VALUE"),
    "setting's range": (["--set", "limits.tilt_rad=7"], "setting limits.tilt_rad: '7' is not a number from 0.01 to 4"),
    "setting's type": (["--set", "limits.missed_deadlines=2.5"], "'2.5' is not a whole number from 1"),
    "setting no number": (["--set", "stand_s=long"], "setting stand_s: 'long' is not a number from 0 to 60"),
    "settings file": (["--settings", "/nowhere.json"], "--settings /nowhere.json: cannot be read"),
    "watchdog": (
        ["--bundle", "x", "--set", "writer_period_s=0.02"],
        "--watchdog-timeout: 0.01 s is less than two writer",
    ),
    "lines in a value": (["--backend", "a\nb"], "'a b' is not one of"),
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
        ("[]", "is not an object of settings"),
        ('{"limits": 3}', "setting limits: 3 is not an object"),
        ('{"stand_s": "3"}', "setting stand_s: '3' is not a number"),
        ('{"stand_s": null}', "is not a number"),
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
    assert ended.stderr == "robot-rl-infer: settings.json: setting limits.tilt_rad: True is not a number\n"
