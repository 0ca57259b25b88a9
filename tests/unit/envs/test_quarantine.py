"""What breaks a world costs only that world, is counted by its reason, and leaves a file that names it."""

import json
from typing import Any

import mujoco
import numpy as np
import pytest
import torch
import warp as wp
from robot_rl_envs.engine import FAULT_OBSERVATION, FAULT_OVERFLOW, FAULT_RAISED, FAULT_REWARD
from robot_rl_envs.engines.mujoco_warnings import take_warnings
from robot_rl_envs.make import make_env
from robot_rl_envs.mdp import events, observations
from robot_rl_envs.recorder.flight import REASONS
from robot_rl_envs.recorder.quarantine import MAX_FILES, ring_length
from robot_rl_envs.task import Event, Observation, ObservationGroup, Reward, Sim, TorchTerm
from robot_rl_envs.terms import event, observation, reward

BAD, STEP = 2, 10
OTHERS = [0, 1, 3, 4, 5, 6, 7]


@reward
@wp.func
def share_of_x(s: Any, i: int) -> float:
    """1 / x of the command, which no one sets to 0 but the test."""
    return 1.0 / s.command[i][0]


@observation(size=1)
@wp.func
def root_of_y(s: Any, i: int, j: int) -> float:
    """The square root of the command's y."""
    return wp.sqrt(s.command[i][1])


def actions_at(step, env):
    return 0.5 * torch.randn(env.num_envs, env.num_actions, generator=torch.Generator().manual_seed(step))


def trajectory(task, poison=None, steps=50, **options):
    """Every state, reward and observation of 8 worlds; ``poison(env, actions)`` is called at step STEP."""
    env = make_env(task, num_envs=8, engine="mujoco", seed=3, num_threads=2, **options)
    env.set_command((1.0, 1.0, 0.0))
    rows = []
    for step in range(steps):
        actions = actions_at(step, env)
        if step == STEP and poison is not None:
            poison(env, actions)
        obs, value, dones, extras = env.step(actions)
        if step == STEP:
            env.set_command((1.0, 1.0, 0.0))
        tensors = [*obs.values(), value, dones, extras["valid"], env.state.qpos, env.state.qvel]
        rows.append([tensor.clone() for tensor in tensors])
    return env, [torch.stack(column) for column in zip(*rows, strict=True)]


def spoil_state(env, actions):
    env.engine.batch.qvel[BAD, 7] = np.nan


def spoil_action(env, actions):
    actions[BAD, 5] = torch.nan


def spoil_reward(env, actions):
    env.set_command((0.0, 1.0, 0.0), torch.tensor([BAD]))


def spoil_observation(env, actions):
    env.set_command((1.0, -1.0, 0.0), torch.tensor([BAD]))


def crouch(env, actions):
    """Put one robot into the floor: dozens of contacts at once."""
    env.engine.batch.qpos[BAD, 2] = 0.0
    env.engine.batch.qpos[BAD, 7:] = -0.5


@pytest.fixture
def sensitive(go2_task):
    """make(**fields): a task with a reward and an observation that break at some commands."""

    def make(**fields):
        sensed = {"joint_pos": Observation(observations.joint_pos_rel, noise=0.01), "root": Observation(root_of_y)}
        own = {
            "observations": {"actor": ObservationGroup(terms=sensed)},
            "rewards": {"share": Reward(share_of_x, weight=1.0)},
            "events": {
                "base": Event(events.reset_base, xy=0.5, yaw=3.14, velocity=0.2),
                "friction": Event(events.foot_friction, lo=0.4, hi=1.2),
            },
        }
        return go2_task(**(own | fields))

    return make


@pytest.fixture
def clean(sensitive):
    return trajectory(sensitive())[1]


@pytest.mark.parametrize(
    ("poison", "reason"),
    [(spoil_state, "state"), (spoil_action, "action"), (spoil_reward, "reward"), (spoil_observation, "observation")],
)
def test_the_others_bits_are_unaffected(sensitive, clean, poison, reason):
    env, spoilt = trajectory(sensitive(), poison)
    valid = spoilt[-3]
    assert (~valid).nonzero().tolist() == [[STEP, BAD]]
    for one, other in zip(clean, spoilt, strict=True):
        assert torch.equal(one[:, OTHERS], other[:, OTHERS])
        assert torch.isfinite(other).all()
    metrics = env.pop_metrics()
    assert metrics["quarantined"] == metrics[f"quarantined/{reason}"] == 1
    assert not {f"quarantined/{name}" for name in REASONS} - {f"quarantined/{reason}"} & set(metrics)


@pytest.mark.parametrize(
    ("memory", "reason", "bit"), [(40_000, "overflow", FAULT_OVERFLOW), (80_000, "raised", FAULT_RAISED)]
)
def test_too_little_memory_costs_the_world_that_needs_more(sensitive, tmp_path, monkeypatch, memory, reason, bit):
    """MuJoCo's arena is full, or its solver's stack is: the others step on, and the line names the setting."""
    monkeypatch.chdir(tmp_path)  # where MuJoCo writes its log
    task = sensitive(sim=Sim(timestep=0.005, decimation=4, memory=memory))
    _, clean = trajectory(task, steps=20)
    assert clean[-3].all()

    def poison(env, actions):
        env.quarantine_dir = tmp_path / "files"
        crouch(env, actions)

    env, spoilt = trajectory(task, poison, steps=20)
    assert (~spoilt[-3]).nonzero().tolist() == [[STEP, BAD]]
    for one, other in zip(clean, spoilt, strict=True):
        assert torch.equal(one[:, OTHERS], other[:, OTHERS])
    assert env.pop_metrics()[f"quarantined/{reason}"] == 1
    (path,) = (tmp_path / "files").glob("*.npz")
    about = json.loads(str(np.load(path)["about"]))
    assert f"sim.memory={memory} bytes are too few" in about["why"][0]
    assert f"set sim.memory={2 * memory}" in about["why"][0]
    *_, line = env.pop_notices()
    assert str(path) in line
    assert f"world {BAD}" in line
    assert REASONS[reason] == bit


def test_the_first_cause_is_counted_and_the_bits_hold_all(puppet, cart_task):
    """A state that is not finite makes rewards and observations so, too: they are not to blame."""
    doll = puppet(cart_task(), num_envs=2)
    doll.step(qpos=[[0.0, 0.0], [np.nan, 0.0]], qvel=[0.0, 0.0], actions=[[0.0], [np.nan]])
    metrics = doll.env.pop_metrics()
    assert metrics["quarantined"] == metrics["quarantined/action"] == 1
    assert "quarantined/state" not in metrics
    assert doll.state.quarantined.tolist() == [0, 3]


def test_a_last_observation_that_is_not_finite_counts(puppet, cart_task):
    """The episode is over by its time, but the last observation is not finite."""
    sensed = {"root": Observation(root_of_y)}
    doll = puppet(cart_task(observations={"actor": ObservationGroup(terms=sensed)}), num_envs=2)
    doll.env.set_command((0.0, -1.0, 0.0), torch.tensor([1]))
    doll.env.set_command((0.0, 4.0, 0.0), torch.tensor([0]))
    doll.env.episode_length_buf[:] = doll.env.max_episode_length
    _, value, dones, extras = doll.step(qpos=[0.0, 0.0], qvel=[0.0, 0.0])
    assert dones.tolist() == [True, True]
    assert extras["time_outs"].tolist() == [True, False]
    assert extras["valid"].tolist() == [True, False]
    assert extras["final_obs"]["actor"].tolist() == [[2.0], [0.0]]
    assert value[1] == 0
    assert doll.state.quarantined.tolist() == [0, FAULT_OBSERVATION]


def test_no_term_sees_what_is_not_finite(puppet, cart_task):
    """A term may index by a position: it is given the default pose instead."""
    seen = []

    def look(state):
        seen.append((state.joint_pos.clone(), state.action.clone()))
        return torch.zeros(state.joint_pos.shape[0])

    doll = puppet(cart_task(rewards={"look": TorchTerm(kind="reward", fn=look)}), num_envs=2)
    doll.step(qpos=[[0.1, 0.2], [np.inf, np.nan]], qvel=[0.0, 0.0], actions=[[0.5], [np.nan]])
    joint_pos, action = seen[-1]
    assert joint_pos[0].tolist() == pytest.approx([0.1, 0.2])
    assert torch.isfinite(joint_pos).all()
    assert torch.isfinite(action).all()


def test_a_torch_term_is_named(puppet, cart_task, tmp_path):
    def bad(state):
        return torch.where(state.joint_pos[:, 0] > 0.5, torch.nan, 1.0)

    rewards = {
        "fine": TorchTerm(kind="reward", fn=lambda s: s.joint_pos[:, 0]),
        "spoilt": TorchTerm(kind="reward", fn=bad),
    }
    doll = puppet(cart_task(rewards=rewards), num_envs=2)
    doll.env.quarantine_dir = tmp_path
    doll.step(qpos=[[0.1, 0.0], [0.9, 0.0]], qvel=[0.0, 0.0])
    assert doll.state.quarantined.tolist() == [0, FAULT_REWARD]
    doll.env.pop_metrics()
    (path,) = tmp_path.glob("reward-world1-*.npz")
    assert json.loads(str(np.load(path)["about"]))["why"] == ["a reward was not finite (term spoilt)"]


def test_a_file_holds_the_last_200_ms(sensitive, tmp_path):
    """Every row is what was seen and done; the model is the world's own; nothing in the file is pickled."""
    import mujoco

    kept = {"qpos": [], "qvel": [], "action": [], "ctrl": []}
    env = make_env(sensitive(), num_envs=4, engine="mujoco", seed=1, world_offset=100)
    env.set_command((1.0, 1.0, 0.0))
    env.quarantine_dir = tmp_path / "quarantine"
    for step in range(15):
        actions = actions_at(step, env)
        if step == 14:
            env.set_command((1.0, -1.0, 0.0), torch.tensor([BAD]))
        kept["qpos"].append(env.state.qpos[BAD].clone())
        kept["qvel"].append(env.state.qvel[BAD].clone())
        friction = env.state.geom_friction[BAD].clone()
        env.step(actions)
        kept["action"].append(actions[BAD].clone())
        kept["ctrl"].append(env.state.ctrl[BAD].clone())
    env.close()
    (path,) = (tmp_path / "quarantine").iterdir()
    assert path.name == "observation-world102-step16.npz"
    data = np.load(path, allow_pickle=False)
    assert len(data["qpos"]) == ring_length(env.step_dt) == 12
    np.testing.assert_array_equal(data["qpos"][:-1], torch.stack(kept["qpos"])[-11:])
    np.testing.assert_array_equal(data["qvel"][:-1], torch.stack(kept["qvel"])[-11:])
    np.testing.assert_array_equal(data["action"], torch.stack(kept["action"])[-11:])
    np.testing.assert_array_equal(data["ctrl"][:, 0], torch.stack(kept["ctrl"])[-11:])
    np.testing.assert_allclose(data["reward"], [*[env.step_dt] * 10, 0.0], rtol=1e-6)
    np.testing.assert_array_equal(data["step"], np.arange(4, 16))
    about = json.loads(str(data["about"]))
    assert about["why"] == ["an observation was not finite (term actor.root)"]
    assert about["world"] == 102
    assert about["time_s"] == pytest.approx(0.3)
    model = mujoco.MjModel.from_binary_path("m.mjb", {"m.mjb": data["model"].tobytes()})
    np.testing.assert_array_equal(model.geom_friction, friction.double())
    assert not np.array_equal(model.geom_friction, env.scene.model.geom_friction)


@event(writes="state")
@wp.func
def start_broken(s: Any, i: int, rng: wp.uint32):
    """A reset that gives no number."""
    s.qvel[i, 0] = wp.sqrt(-1.0)


def test_files_are_few(go2_task, tmp_path):
    """Worlds that break at once after each reset fill no disk, and the user is notified once."""
    env = make_env(go2_task(events={"broken": Event(start_broken)}), num_envs=3, engine="mujoco")
    env.quarantine_dir = tmp_path
    lines = []
    for _ in range(12):
        env.step(torch.zeros(3, 12))
        assert env.pop_metrics()["quarantined"] == 3
        lines += env.pop_notices()
    files = sorted(tmp_path.iterdir())
    assert len(files) == MAX_FILES
    assert len(lines) == 2
    assert "only counted" in lines[1]
    env.quarantine_dir = tmp_path  # as a resumed run does
    env.step(torch.zeros(3, 12))
    env.pop_metrics()
    assert sorted(tmp_path.iterdir()) == files


def test_a_loaded_state_does_not_inherit_the_recorder(sensitive, tmp_path):
    env = make_env(sensitive(), num_envs=4, engine="mujoco", seed=1)
    env.set_command((1.0, 1.0, 0.0))
    for step in range(15):
        env.step(actions_at(step, env))
    kept = env.state_dict()
    assert not [name for name in kept if "flight" in name or "rows" in name]
    env.load_state_dict(kept)
    env.quarantine_dir = tmp_path
    env.step(actions_at(0, env))
    env.engine.batch.qvel[BAD, 7] = np.nan
    env.step(actions_at(1, env))
    env.pop_metrics()
    (path,) = tmp_path.iterdir()
    assert np.load(path)["step"].tolist() == [15, 16, 17]


def test_mujoco_writes_no_file_of_warnings(go2_task, tmp_path, monkeypatch, capfd):
    monkeypatch.chdir(tmp_path)
    env = make_env(go2_task(), num_envs=4, engine="mujoco", num_threads=2)
    env.step(torch.full((4, 12), torch.nan))
    assert list(tmp_path.iterdir()) == []
    assert "WARNING" not in capfd.readouterr().err


def test_explicit_actuators_are_recorded_substep_by_substep(go2_task, tmp_path):
    from robot_rl_envs.actuation.actuators import ExplicitPd
    from robot_rl_envs.task import Actions

    env = make_env(go2_task(actions=Actions(actuator=ExplicitPd())), num_envs=2, engine="mujoco")
    env.quarantine_dir = tmp_path
    for step in range(3):
        env.step(actions_at(step, env))
        last = env.state.ctrl[1].clone()
    env.engine.batch.qvel[1, 7] = np.nan
    env.step(actions_at(3, env))
    env.pop_metrics()
    (path,) = tmp_path.iterdir()
    ctrl = np.load(path)["ctrl"]
    assert ctrl.shape == (4, 4, 12)
    np.testing.assert_array_equal(ctrl[2, -1], last)
    assert np.abs(np.diff(ctrl[:3], axis=1)).min() > 0


def test_a_users_function_keeps_mujocos_warnings(go2_task):
    def heard(line):
        pass

    before = mujoco.get_mju_user_warning()
    mujoco.set_mju_user_warning(heard)
    try:
        make_env(go2_task(), num_envs=1, engine="mujoco", num_threads=1).close()
        with take_warnings(print):
            assert mujoco.get_mju_user_warning() is print
        assert mujoco.get_mju_user_warning() is heard
    finally:
        mujoco.set_mju_user_warning(before)
