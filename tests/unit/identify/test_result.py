"""The file of a result: read as it was written, with ranges for events, and refused if it is something else."""

import json
from dataclasses import replace

import pytest

from robot_rl.errors import UserError
from robot_rl.identify.result import Estimate, Identified, NetEntry, Refit, table


@pytest.fixture
def result():
    def row(nominal, value, half, seen=True):
        return Estimate(nominal=nominal, value=value, lo=value - half, hi=value + half, seen=seen, unit="N m")

    joints = {
        "a": {"gain": row(1.0, 0.9, 0.05), "friction": row(0.2, 0.6, 0.1), "armature": row(0.01, 0.02, 0.001, False)},
        "b": {"gain": row(1.0, 1.1, 0.02), "friction": row(0.1, 0.02, 0.03), "armature": row(0.01, 0.03, 0.001)},
    }
    logs = [{"name": "x.npz", "sha256": "00", "part": "fit"}]
    delay = Estimate(nominal=0.0, value=0.005, lo=0.004, hi=0.006, seen=True)
    errors = {"held": {"before": {"q": 0.01, "dq": 0.1}, "after": {"q": 0.002, "dq": 0.05}}}
    coarse = {joint: {name: 1.5 * row.value for name, row in rows.items()} for joint, rows in joints.items()}
    return Identified(
        robot="r",
        base="fixed",
        timestep=0.002,
        window_s=0.5,
        logs=logs,
        model={joint: {"kd": 2.0, "gain": 1.0, "friction": 0.2, "armature": 0.01, "damping": 0.1} for joint in joints},
        joints=joints,
        delay=delay,
        errors=errors,
        refits=[Refit(timestep=0.01, values=coarse, delay=0.004, errors=errors["held"])],
    )


def test_ranges_contain_the_intervals_of_all_joints_as_factors(result):
    """Friction: 0.5 / 0.2 to 0.7 / 0.2, and -0.1 to 0.5: less than 0.01 becomes 0.01; a joint hides its armature."""
    found = result.ranges()
    assert sorted(found) == ["delay_s", "joint_friction", "motor_strength"]
    assert found["joint_friction"] == pytest.approx({"lo": 0.01, "hi": 3.5})
    assert found["motor_strength"] == pytest.approx({"lo": 0.85, "hi": 1.12})
    assert found["delay_s"] == {"lo": 0.004, "hi": 0.006}


def test_a_training_gets_what_the_logs_show_at_each_timestep(result):
    """An armature that is not seen, and a damping that was not fitted, are the model's; spreads are around the values.

    Half the interval of friction of b is 1.5 of its value, and 0.3 of the model's; that of gain is 0.05.
    """
    fine, coarse = result.training()
    assert (fine["timestep"], coarse["timestep"]) == (0.002, 0.01)
    assert fine["joints"]["a"] == {"kd": 2.0, "gain": 0.9, "armature": 0.01, "damping": 0.1, "friction": 0.6}
    assert coarse["joints"]["b"] == pytest.approx(
        {"kd": 2.0, "gain": 1.65, "armature": 0.045, "damping": 0.1, "friction": 0.03}
    )
    assert coarse["ranges"] == {
        "gain": pytest.approx([0.95, 1.05]),
        "armature": pytest.approx([0.95, 1.05]),
        "friction": pytest.approx([0.7, 1.3]),
    }
    assert fine["delay_s"] == pytest.approx([0.004, 0.006])
    assert coarse["delay_s"] == pytest.approx([0.003, 0.005])


def test_a_file_is_read_as_it_was_written(result, tmp_path):
    result.write(tmp_path / "r.json")
    assert Identified.read(tmp_path / "r.json") == result
    assert json.loads((tmp_path / "r.json").read_text())["ranges"] == result.ranges()


def test_a_network_is_read_again_and_earlier_files_are_without_one(result, tmp_path):
    """An error of 1.5 mrad is 0.75 of that of the parameters, 2 mrad."""
    net = NetEntry(
        file="x.safetensors",
        sha256="00",
        trained=True,
        lags_s=[0.0, 0.01],
        timestep=0.01,
        dynamics="model",
        errors={"q": 0.0015, "dq": 0.05},
        ratio=0.75,
        used=True,
    )
    path = tmp_path / "r.json"
    replace(result, net=net).write(path)
    assert Identified.read(path).net == net
    assert "positions 1.50 mrad" in net.line()
    assert net.line().endswith("the fitted parameters 2.00 mrad; it is 25 % better")
    path.write_text(json.dumps({key: value for key, value in result.to_json().items() if key != "net"}))
    assert Identified.read(path) == result


def test_the_table_says_what_is_not_seen(result):
    lines = table(result)
    assert [line for line in lines if line.endswith("not seen")] == [
        line for line in lines if line.startswith("a  armature")
    ]


@pytest.mark.parametrize(
    ("change", "line"),
    [
        ({"format": "other"}, "is not a file of robot-rl identify"),
        ({"version": 9}, "version=9"),
        ({"joints": 3}, "damaged"),
        ({"net": {"file": "x"}}, "damaged"),
    ],
)
def test_other_files_are_refused(result, tmp_path, change, line):
    path = tmp_path / "r.json"
    path.write_text(json.dumps(result.to_json() | change))
    with pytest.raises(UserError, match=line):
        Identified.read(path)
