"""The heading command against NumPy: what it draws, how it turns an error into a yaw rate, and when it does not."""

import numpy as np
import pytest
from robot_rl_envs.make import make_env
from robot_rl_envs.mdp import commands
from robot_rl_envs.task import Actions, Command

N, SEED = 64, 21
RESAMPLE_S = (0.5, 1.0)
PARAMS = {
    "vx_lo": -1.0,
    "vx_hi": 1.5,
    "vy_lo": -0.6,
    "vy_hi": 0.5,
    "yaw_lo": -0.8,
    "yaw_hi": 1.1,
    "stiffness": 0.7,
    "heading_share": 0.6,
    "standing": 0.2,
    "min_speed": 0.3,
    "range_lo": 0.4,
}


def heading_velocity(draw, command_range, yaw_now):
    """(command, target heading or None) from a world's draws, its command range from 0 to 1 and its base's heading."""
    p = PARAMS
    scale = p["range_lo"] + (1 - p["range_lo"]) * command_range
    planar = scale * np.array([draw(p["vx_lo"], p["vx_hi"]), draw(p["vy_lo"], p["vy_hi"])])
    yaw = draw(p["yaw_lo"], p["yaw_hi"])
    target = draw(-np.pi, np.pi)
    heads = draw(0, 1) < p["heading_share"]
    if np.hypot(*planar) < p["min_speed"]:
        planar = np.zeros(2)
    if draw(0, 1) < p["standing"]:
        return np.zeros(3), None
    if heads:
        yaw = yaw_rate(target, yaw_now)
    return np.array([*planar, yaw]), target if heads else None


def yaw_rate(target, yaw_now):
    error = np.angle(np.exp(1j * (target - yaw_now)))
    return np.clip(PARAMS["stiffness"] * error, PARAMS["yaw_lo"], PARAMS["yaw_hi"])


def heading(quat):
    """Of (n, 4) attitudes w, x, y, z: where the base's x axis points in the plane."""
    w, x, y, z = quat.T
    return np.arctan2(2 * (w * z + x * y), 1 - 2 * (y * y + z * z))


@pytest.fixture(scope="module")
def doll(puppet, go2_task_once):
    term = Command(commands.heading_velocity, resample_s=RESAMPLE_S, **PARAMS)
    return puppet(go2_task_once(name="heading", commands={"velocity": term}), num_envs=N, seed=SEED)


@pytest.fixture
def drawn(doll):
    """Freshly drawn commands in worlds with different command ranges."""
    doll.env.set_command(None)
    doll.put("command_range", np.linspace(0, 1, N))
    doll.env.reset()
    return doll.snapshot()


def test_a_draw_is_its_formula(drawn, stream):
    targets = []
    for i in range(N):
        draw = stream(SEED, "commands.velocity", i, drawn.counter[i]).uniform
        draw(*RESAMPLE_S)
        want, target = heading_velocity(draw, drawn.command_range[i], 0.0)
        np.testing.assert_allclose(drawn.command[i], want, atol=2e-6)
        assert drawn.has_heading[i] == (target is not None)
        if target is not None:
            assert drawn.heading_target[i] == pytest.approx(target, abs=1e-5)
            targets.append(target)
    standing = (drawn.command == 0).all(axis=1)
    turning = (drawn.command[:, :2] == 0).all(axis=1) & ~standing
    assert 0 < standing.sum() < N / 2
    assert turning.any(), "no planar command was too slow"
    assert 0.3 * N < len(targets) < 0.7 * N
    assert np.ptp(targets) > 5


def test_an_initial_range_bounds_the_planar_command(drawn):
    speed = np.abs(drawn.command[:, 0])
    scale = PARAMS["range_lo"] + (1 - PARAMS["range_lo"]) * drawn.command_range
    assert (speed <= 1.5 * scale + 1e-6).all()
    assert speed[: N // 4].max() < 1.5 * 0.55 < speed[-N // 4 :].max()


def test_a_heading_becomes_a_yaw_rate_in_every_step(doll, drawn, go2_states):
    for seed in range(3):
        states = go2_states(seed, N)
        doll.step(**states)
        s = doll.snapshot()
        heads = s.has_heading > 0
        want = yaw_rate(drawn.heading_target, heading(states["qpos"][:, 3:7].astype(float)))
        np.testing.assert_allclose(s.command[heads, 2], want[heads], atol=1e-5)
        np.testing.assert_array_equal(s.command[~heads], drawn.command[~heads])
        np.testing.assert_array_equal(s.command[:, :2], drawn.command[:, :2])


def test_a_command_held_by_hand_is_left_alone(doll, drawn, go2_states):
    doll.env.set_command((0.3, -0.2, 0.1))
    doll.step(**go2_states(5, N))
    np.testing.assert_allclose(doll.snapshot().command, np.tile([0.3, -0.2, 0.1], (N, 1)), atol=1e-6)


def test_a_new_draw_is_made_when_the_time_is_up(doll, drawn, go2_states):
    doll.put("command_left_s", 0.0)
    doll.step(**go2_states(6, N))
    s = doll.snapshot()
    assert (s.heading_target != drawn.heading_target).all()
    assert (s.command_left_s >= RESAMPLE_S[0] - 1e-6).all()


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"heading_share": 1.5}, ["commands.velocity.heading_share=1.5", "[0, 1]"]),
        ({"standing": -0.1}, ["commands.velocity.standing=-0.1", "[0, 1]"]),
        ({"range_lo": 1.5}, ["commands.velocity.range_lo=1.5", "[0, 1]"]),
        ({"stiffness": -1.0}, ["commands.velocity.stiffness=-1", "at least 0"]),
        ({"min_speed": -1.0}, ["commands.velocity.min_speed=-1", "at least 0"]),
    ],
)
def test_ranges_that_make_no_sense_are_refused_before_anything_runs(go2_task, change, words):
    task = go2_task(commands={"velocity": Command(commands.heading_velocity, **(PARAMS | change))})
    with pytest.raises(ValueError, match=".") as caught:
        make_env(task, num_envs=2, engine="mujoco")
    assert all(word in str(caught.value) for word in words), caught.value


@pytest.mark.parametrize("change", [{"vx_lo": 2.0}, {"yaw_lo": 2.0}, {"vy_hi": -3.0}])
@pytest.mark.parametrize("term", [commands.heading_velocity, commands.uniform_velocity])
def test_a_range_that_ends_below_its_begin_is_refused_whatever_the_term(term, change):
    own = {name: value for name, value in (PARAMS | change).items() if name in term.term_info.params}
    (name,) = change
    with pytest.raises(ValueError, match=rf"{name[:-2]}lo=.*: must be at most {name[:-2]}hi="):
        Command(term, **own)


def test_a_robot_without_a_floating_base_has_no_heading(cart_task):
    task = cart_task(actions=Actions(kind="effort"), commands={"v": Command(commands.heading_velocity, **PARAMS)})
    with pytest.raises(ValueError, match=r"commands\.v\.heading_share=0\.6.*fixed base"):
        make_env(task, num_envs=2, engine="mujoco")
