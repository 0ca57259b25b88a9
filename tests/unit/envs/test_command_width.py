"""A command has the width that its term declares: in the state, what is observed, its mirror and what is recorded."""

from typing import Any

import numpy as np
import pytest
import torch
import warp as wp
from robot_rl_deploy.describe import make_contract
from robot_rl_deploy.parts import TrainingSpec
from robot_rl_envs.make import make_env
from robot_rl_envs.mdp import commands, observations, rewards
from robot_rl_envs.recorder.flight import COMMAND
from robot_rl_envs.task import Command, Observation, ObservationGroup, Reward
from robot_rl_envs.terms import command, reward


@command(components={"x": "m"}, mirror=(-1.0,))
@wp.func
def push_to(s: Any, i: int, rng: wp.uint32, x_lo: float, x_hi: float):
    """A place for the cart [m]."""
    s.command[i][0] = x_lo + (x_hi - x_lo) * wp.randf(rng)


@command(components=dict.fromkeys("abcde", "1"), mirror=(1.0, -1.0, -1.0, 1.0, -1.0))
@wp.func
def five(
    s: Any,
    i: int,
    rng: wp.uint32,
    a_lo: float,
    a_hi: float,
    b_lo: float,
    b_hi: float,
    c_lo: float,
    c_hi: float,
    d_lo: float,
    d_hi: float,
    e_lo: float,
    e_hi: float,
):
    """Five numbers."""
    s.command[i][0] = a_lo + (a_hi - a_lo) * wp.randf(rng)
    s.command[i][1] = b_lo + (b_hi - b_lo) * wp.randf(rng)
    s.command[i][2] = c_lo + (c_hi - c_lo) * wp.randf(rng)
    s.command[i][3] = d_lo + (d_hi - d_lo) * wp.randf(rng)
    s.command[i][4] = e_lo + (e_hi - e_lo) * wp.randf(rng)


@reward
@wp.func
def last_component(s: Any, i: int) -> float:
    """The last number of the command."""
    return s.command[i][len(s.command[i]) - 1]


RANGES = {f"{name}_{end}": value for name in "abcde" for end, value in (("lo", 0.5), ("hi", 1.0))}
CASES = {
    1: (Command(push_to, resample_s=(0.04, 0.04), x_lo=-1.0, x_hi=1.0), [-1.0]),
    5: (Command(five, resample_s=(0.04, 0.04), **RANGES), [1.0, -1.0, -1.0, 1.0, -1.0]),
}


@pytest.fixture
def commanded(cart_task):
    """Builds worlds of a cart-pole with a command of one of the widths."""

    def build(width, **changes):
        term = CASES[width][0]
        terms = {"joints": Observation(observations.joint_pos_rel), "command": Observation(observations.command)}
        parts = {
            "observations": {"actor": ObservationGroup(terms=terms, noise=False)},
            "commands": {"target": term},
            "rewards": {"last": Reward(last_component, weight=1.0)},
            "mirror": True,
        }
        return make_env(cart_task(**(parts | changes)), num_envs=3, engine="mujoco", num_threads=1)

    return build


@pytest.mark.parametrize("width", CASES)
def test_a_command_of_any_width_is_drawn_observed_mirrored_and_recorded(commanded, width, tmp_path):
    env = commanded(width)
    assert env.scene.sizes["command"] == width
    assert env.state.command.shape == (3, width)
    first = env.state.command.clone()
    assert first.abs().min() > 0
    assert torch.equal(env.get_observations()["actor"][:, 2:], first)
    before = first[:, -1].clone()
    env.quarantine_dir = tmp_path
    _, rewards_given, _, _ = env.step(torch.zeros(3, env.num_actions))
    assert rewards_given.tolist() == pytest.approx((before * env.step_dt).tolist())
    for _ in range(4):
        obs, *_ = env.step(torch.zeros(3, env.num_actions))
    assert not torch.equal(env.state.command, first)
    assert torch.equal(obs["actor"][:, 2:], env.state.command)
    assert env.robot_state()["command"].shape == (3, width)
    perm, sign = env.mirror["actor"]
    assert perm.tolist() == list(range(2 + width))
    assert sign[2:].tolist() == CASES[width][1]
    rows = env.only._quarantine.flight.rows.numpy()[:, 0]
    written = rows[np.isfinite(rows[:, 0])]
    assert np.abs(written[:, COMMAND : COMMAND + width]).min() > 0
    qpos = COMMAND + width
    assert any(np.allclose(row[qpos : qpos + 2], env.state.qpos[0], atol=0.2) for row in written)
    env.close()


def test_a_world_that_dies_keeps_its_command(commanded, tmp_path):
    env = commanded(5)
    env.quarantine_dir = tmp_path
    env.step(torch.zeros(3, env.num_actions))
    env.step(torch.tensor([[float("nan")], [0.0], [0.0]]))
    env.pop_metrics()
    (path,) = tmp_path.glob("*.npz")
    with np.load(path) as file:
        assert file["command"].shape == (file["qpos"].shape[0], 5)
        assert file["qpos"].shape[1] == env.scene.model.nq
        assert np.abs(file["command"]).min() >= 0.5
    env.close()


def test_a_command_is_held_at_values_of_its_width(commanded):
    env = commanded(5)
    env.set_command((0.1, 0.2, 0.3, 0.4, 0.5))
    env.step(torch.zeros(3, env.num_actions))
    assert env.state.command[2].tolist() == pytest.approx([0.1, 0.2, 0.3, 0.4, 0.5])
    with pytest.raises(ValueError, match=r"command=\(0.5, 0.0, 0.0\): .* needs 5 components"):
        env.set_command((0.5, 0.0, 0.0))
    env.close()


def test_a_state_goes_on_with_its_command(commanded):
    env, other = commanded(5), commanded(5)
    env.step(torch.zeros(3, env.num_actions))
    other.load_state_dict(env.state_dict())
    assert torch.equal(other.state.command, env.state.command)
    narrow = commanded(1)
    with pytest.raises(ValueError, match="command"):
        narrow.load_state_dict(env.state_dict())


def test_terms_that_read_more_than_there_is_are_refused(commanded):
    tracks = {"track": Reward(rewards.track_yaw_rate, weight=1.0, std=1.0)}
    with pytest.raises(ValueError, match=r"rewards\.track: track_yaw_rate reads 3 components .* has 1"):
        commanded(1, rewards=tracks)
    seen = {"actor": ObservationGroup(terms={"v": Observation(observations.velocity_command)})}
    with pytest.raises(ValueError, match=r"observations\.actor\.v: velocity_command reads 3 components .* has 1"):
        commanded(1, observations=seen)


def test_commands_of_two_kinds_do_not_share_a_task(cart_task):
    ranges = dict.fromkeys(("vx_lo", "vx_hi", "vy_lo", "vy_hi", "yaw_lo", "yaw_hi", "standing"), 0.0)
    three = Command(commands.uniform_velocity, **ranges)
    box = dict.fromkeys(("x_lo", "x_hi", "y_lo", "y_hi", "z_lo", "z_hi", "site"), 0.0)
    for other in (CASES[1][0], Command(commands.uniform_position, **box)):
        with pytest.raises(ValueError, match=r"commands=.*same components"):
            cart_task(commands={"one": other, "three": three})
    cart_task(commands={"one": three, "three": three})


METERS = dict.fromkeys("xyz", "m")


@pytest.mark.parametrize(
    ("declared", "line"),
    [
        ({"components": {}}, r"components=\[\]: must be 1 to 96 names"),
        ({"components": {f"c{k}": "1" for k in range(97)}}, "components=.*: must be 1 to 96 names"),
        ({"components": {"a b": "m"}}, r"components=\{'a b': 'm'\}: must be a name of letters"),
        ({"components": {"x": ""}}, "components=.*, and a unit"),
        ({"components": METERS, "frame": "robot"}, "frame='robot': must be one of base, world, none"),
        ({"components": METERS, "draws": "arrow"}, "draws='arrow': must be one of velocity, position, pose, phase"),
        ({"components": METERS, "draws": "velocity"}, "draws='velocity': wants first 3 components of m/s, m/s, rad/s"),
        ({"components": METERS | {"w": "1"}, "draws": "pose"}, "draws='pose': wants exactly 7 components .* it has 4"),
        ({"components": {"a": "1", "b": "1"}, "draws": "phase"}, "draws='phase': wants exactly 1 components of 1"),
        ({"components": METERS, "draws": "position", "frame": "none"}, "frame='none': a position is in a frame"),
        ({"components": METERS, "mirror": (1.0,)}, "mirror=.*: must have a sign for each of 3 components"),
    ],
)
def test_a_command_that_contradicts_itself_is_one_line(declared, line):
    with pytest.raises(ValueError, match=f"^@command {line}") as error:
        command(**declared)
    assert "\n" not in str(error.value)


def test_a_component_without_a_range_is_refused():
    def lonely(s: Any, i: int, rng: wp.uint32, x_lo: float):
        """One end of a range only."""

    with pytest.raises(ValueError, match="@command lonely: component 'x' needs parameters x_lo and x_hi"):
        command(components={"x": "m"})(lonely)
    assert command(components={"turn": "1"}, draws="phase", frame="none")(lonely).term_info.size == 1


@pytest.mark.parametrize("width", CASES)
def test_the_contract_of_a_policy_names_each_component(commanded, width):
    env = commanded(width)
    training = TrainingSpec(run_id="a", task="cart", git_commit="unknown", iteration=1)
    contract = make_contract(env.describe_policy(), training)
    assert [(c.name, c.lower, c.upper) for c in contract.command] == (
        [("x", -1.0, 1.0)] if width == 1 else [(name, 0.5, 1.0) for name in "abcde"]
    )
    assert contract.observations[1].size == contract.signal_sizes()["command"] == width
    assert (contract.observations[1].unit, contract.observations[1].frame) == ("m" if width == 1 else "1", "base")
    env.close()
