"""Targets of an arm, `uniform_position`, `uniform_pose` and `moving_position`, against NumPy.

What is drawn, how a target travels, what is out of reach, what is described.
"""

import numpy as np
import pytest
import torch
from robot_rl_deploy.describe import make_contract
from robot_rl_deploy.parts import TrainingSpec
from robot_rl_envs.make import make_env
from robot_rl_envs.mdp import commands, observations
from robot_rl_envs.task import Command, Observation, ObservationGroup

from tests.unit.arm import BOX, KINDS, TURNS

N, SEED = 32, 5
LOW, HIGH = (np.array([BOX[f"{axis}_{end}"] for axis in "xyz"]) for end in ("lo", "hi"))
TRAINING = TrainingSpec(run_id="a", task="reach", git_commit="unknown", iteration=1)


@pytest.fixture
def made(arm_task):
    """make(kind, num_envs=N, **fields): worlds of the arm."""
    return lambda kind, num_envs=N, **fields: make_env(
        arm_task(kind, **fields), num_envs=num_envs, engine="mujoco", num_threads=1, seed=SEED
    )


def draws(stream, env, i):
    """The draws of world i for its command, after that of the time until the next."""
    draw = stream(SEED, "commands.target", i, int(env.state.counter[i])).uniform
    draw(10.0, 10.0)
    return draw


def matrix(w, x, y, z):
    return np.array(
        [
            [1 - 2 * (y * y + z * z), 2 * (x * y - w * z), 2 * (x * z + w * y)],
            [2 * (x * y + w * z), 1 - 2 * (x * x + z * z), 2 * (y * z - w * x)],
            [2 * (x * z - w * y), 2 * (y * z + w * x), 1 - 2 * (x * x + y * y)],
        ]
    )


def turn(axis, angle):
    c, s = np.cos(angle), np.sin(angle)
    j, k = (axis + 1) % 3, (axis + 2) % 3
    found = np.eye(3)
    found[[j, j, k, k], [j, k, j, k]] = c, -s, s, c
    return found


@pytest.mark.long
def test_a_position_is_uniform_in_the_box(made, stream):
    env = made("position")
    for i in range(N):
        draw = draws(stream, env, i)
        want = [draw(lo, hi) for lo, hi in zip(LOW, HIGH, strict=True)]
        np.testing.assert_allclose(env.state.command[i], want, atol=1e-6)
    assert np.ptp(env.state.command.numpy(), axis=0) == pytest.approx(HIGH - LOW, rel=0.3)
    env.close()


@pytest.mark.long
def test_a_pose_is_a_point_and_a_unit_quaternion_of_yaw_pitch_and_roll(made, stream):
    env = made("pose")
    command = env.state.command.numpy().astype(float)
    assert command.shape == (N, 7)
    np.testing.assert_allclose(np.linalg.norm(command[:, 3:], axis=1), 1.0, atol=1e-6)
    assert (command[:, 3] >= 0).all()
    for i in range(N):
        draw = draws(stream, env, i)
        point = [draw(lo, hi) for lo, hi in zip(LOW, HIGH, strict=True)]
        roll, pitch, yaw = (draw(TURNS[f"{name}_lo"], TURNS[f"{name}_hi"]) for name in ("roll", "pitch", "yaw"))
        np.testing.assert_allclose(command[i, :3], point, atol=1e-6)
        np.testing.assert_allclose(matrix(*command[i, 3:]), turn(2, yaw) @ turn(1, pitch) @ turn(0, roll), atol=2e-6)
    assert not np.allclose(command[:, 4:], command[0, 4:])
    env.close()


@pytest.mark.long
def test_a_target_travels_straight_at_its_speed_and_stops_at_its_goal(made):
    assert KINDS["moving"].fn is commands.moving_position
    env, zeros = made("moving", events={}), torch.zeros(N, 3)
    step = 0.2 * env.step_dt
    start, goal = env.state.command.clone(), env.state.target_goal.clone()
    assert ((start >= torch.tensor(LOW) - 1e-6) & (start <= torch.tensor(HIGH) + 1e-6)).all()
    before = (goal - start).norm(dim=1)
    assert before.max() > 30 * step, "some goals are further than half a second at 0.2 m/s"
    for _ in range(10):
        env.step(zeros)
    moved = env.state.command - start
    np.testing.assert_allclose(moved.norm(dim=1), np.minimum(before, 10 * step), atol=1e-5)
    cross = torch.linalg.cross(moved, goal - start).norm(dim=1)
    np.testing.assert_allclose(cross, 0.0, atol=1e-5)
    at = env.state.command.clone()
    # After half a second there is another goal: the target goes on from where it is.
    for _ in range(20):
        env.step(zeros)
    assert not torch.equal(env.state.target_goal, goal)
    assert (env.state.command - at).norm(dim=1).max() <= 20 * step + 1e-5
    env.state.target_goal.copy_(env.state.command + torch.tensor([0.5 * step, 0.0, 0.0]))
    goal = env.state.target_goal.clone()
    env.step(zeros)
    assert torch.equal(env.state.command, goal)
    env.close()


def test_a_target_held_by_hand_stays_and_goes_on_from_there(made):
    env, zeros = made("moving", num_envs=1), torch.zeros(1, 3)
    held = torch.tensor([[0.3, 0.1, 0.2]])
    env.set_command((0.3, 0.1, 0.2))
    for _ in range(60):
        env.step(zeros)
    assert torch.equal(env.state.command, held)
    env.set_command(None)
    env.step(zeros)
    way = env.state.command - held
    assert float(way.norm()) == pytest.approx(0.2 * env.step_dt, rel=1e-4)
    env.close()


@pytest.mark.parametrize(
    ("change", "line"),
    [
        # 0.9^2 + 0.3^2 + 0.4^2 = 1.03^2
        (
            {"x_hi": 0.9},
            r"commands\.target\.x_hi=0\.9: the corner \(0\.9, -0\.3, 0\.5\) is 1\.030 m from the first "
            r"joint of robot 'arm3'; its site 'tip' reaches 0\.750 m at most",
        ),
        ({"z_lo": -0.8}, r"commands\.target\.z_lo=-0\.8: the corner \(0\.5, -0\.3, -0\.8\)"),
        ({"x_lo": 0.6}, r"x_lo=0\.6: must be at most x_hi=0\.5"),
        ({"site": "mark"}, r"commands\.target\.site='mark': no joint of robot 'arm3' moves it"),
        (
            {"site": "top"},
            r"commands\.target\.site='top': the scene lacks a site or body of that name; did you mean 'tip'",
        ),
    ],
)
def test_a_target_out_of_reach_is_one_line(made, change, line):
    for function, more in ((commands.uniform_position, {}), (commands.uniform_pose, TURNS)):
        with pytest.raises(ValueError, match=line) as error:
            made(Command(function, **(BOX | {"site": "tip"} | more | change)))
        assert "\n" not in str(error.value)


def test_a_box_that_just_touches_the_reach_is_accepted(made):
    corner = BOX | {"y_lo": 0.0, "y_hi": 0.0, "z_lo": 0.1, "z_hi": 0.1, "x_hi": 0.75}
    made(Command(commands.uniform_position, site="tip", **corner), num_envs=1).close()
    with pytest.raises(ValueError, match="x_hi=0.76: .* is 0.760 m"):
        made(Command(commands.uniform_position, site="tip", **(corner | {"x_hi": 0.76})))


def test_a_slide_adds_what_it_travels(made, arm_task, tmp_path):
    import mujoco
    from robot_rl_envs.terms.checks import longest_reach

    rail = '<mujoco><worldbody><body name="cart" pos="1 0 0"><joint type="slide" axis="1 0 0" {}/><geom size=".1"/>{}'
    rail += "</body></worldbody></mujoco>"
    arm = '<body pos="0 0 0.2"><joint axis="0 1 0"/><geom size=".1"/><site name="tip" pos="0 0 0.5"/></body>'
    model = mujoco.MjModel.from_xml_string(rail.format('range="-0.4 0.3"', arm))
    start, reach = longest_reach(model, 2, np.array([0.0, 0.0, 0.5]))
    np.testing.assert_allclose(start, [1, 0, 0])
    assert reach == pytest.approx(0.2 + 0.5 + 0.4)
    endless = mujoco.MjModel.from_xml_string(rail.format("", arm))
    assert longest_reach(endless, 2, np.array([0.0, 0.0, 0.5]))[1] == np.inf


def test_a_floating_robot_may_have_targets_anywhere(go2_task):
    far = BOX | {"x_hi": 9.0}
    env = make_env(go2_task(commands={"target": Command(commands.uniform_position, site="FL_foot", **far)}), num_envs=1)
    assert env.describe_command()["components"]["x"] == {"unit": "m", "lower": 0.2, "upper": 9.0}
    env.close()


@pytest.mark.parametrize("kind", KINDS)
def test_a_target_is_described_and_its_contract_is_valid(made, kind):
    env = made(kind, num_envs=1)
    described = env.describe_command()
    assert described["name"] == "target"
    assert (described["frame"], described["draws"]) == ("base", "pose" if kind == "pose" else "position")
    parts = {axis: {"unit": "m", "lower": BOX[f"{axis}_lo"], "upper": BOX[f"{axis}_hi"]} for axis in "xyz"}
    if kind == "pose":
        parts |= {name: {"unit": "1", "lower": -1.0, "upper": 1.0} for name in ("qw", "qx", "qy", "qz")}
    assert described["components"] == parts
    assert list(described["components"]) == list(parts)
    policy = env.describe_policy()
    seen = policy["observations"][2]
    assert (seen["unit"], seen["frame"]) == ("m, m, m, 1, 1, 1, 1" if kind == "pose" else "m", "base")
    contract = make_contract(policy, TRAINING)
    term = contract.observations[2]
    assert (term.signal, term.size, term.unit) == ("command", len(parts), "1" if kind == "pose" else "m")
    assert [(c.name, c.lower, c.upper) for c in contract.command] == [
        (n, p["lower"], p["upper"]) for n, p in parts.items()
    ]
    env.close()


def test_a_velocity_is_described_as_it_was(go2_task):
    ranges = {"vx_lo": -1.0, "vx_hi": 1.5, "vy_lo": -0.6, "vy_hi": 0.6, "yaw_lo": -1.0, "yaw_hi": 1.0, "standing": 0.1}
    seen = {"all": Observation(observations.command), "velocity": Observation(observations.velocity_command)}
    task = go2_task(
        commands={"velocity": Command(commands.uniform_velocity, **ranges)},
        observations={"actor": ObservationGroup(terms=seen)},
        mirror=True,
    )
    env = make_env(task, num_envs=1, engine="mujoco", num_threads=1)
    assert env.describe_command()["draws"] == "velocity"
    contract = make_contract(env.describe_policy(), TRAINING)
    assert [(c.name, c.lower, c.upper) for c in contract.command] == [
        ("vx", -1.0, 1.5),
        ("vy", -0.6, 0.6),
        ("yaw", -1.0, 1.0),
    ]
    assert {term.unit for term in contract.observations} == {"m/s, m/s, rad/s"}
    assert env.mirror["actor"][1].tolist() == [1, -1, -1, 1, -1, -1]
    env.close()


def test_a_robot_that_is_bolted_down_is_not_pushed(made):
    env = made("position", num_envs=1)
    with pytest.raises(ValueError, match=r"push=\(1.0, 0.0, 0.0\): robot 'arm3' has a fixed base"):
        env.push((1.0, 0.0, 0.0))
    env.close()
