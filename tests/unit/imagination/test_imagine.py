"""Imagined steps are the simulator's where the changes are, and their gradients are those of finite differences."""

from dataclasses import replace

import pytest
import torch
from robot_rl_envs.entity.scene import make_scene
from robot_rl_envs.imagination.frames import fields_of
from robot_rl_envs.imagination.imagine import Imagination
from robot_rl_envs.imagination.worlds import why_not_imagined, with_world
from robot_rl_envs.make import make_env
from robot_rl_envs.mdp import observations
from robot_rl_envs.task import Observation
from robot_rl_tasks.registry import get_task

from tests.covering import chosen

ROWS, STEPS = 16, 4
SENSOR = {"noise": 0.05, "bias": 0.1, "drift": 0.1, "delay_s": (0.02, 0.08), "dropout": 0.3, "history": 3}


def make_task(name):
    """Without pushes; a cartpole's observations go through all that a sensor does."""
    task = get_task(name)
    task = replace(task, events={name: event for name, event in task.events.items() if event.mode != "interval"})
    if name == "cartpole":
        terms = task.observations["actor"].terms | {"late": Observation(observations.joint_vel, **SENSOR)}
        task = replace(
            task, observations=task.observations | {"actor": replace(task.observations["actor"], terms=terms)}
        )
    return task


class Recorded:
    """Steps that the simulator took with random actions."""

    def __init__(self, env, imagination, before=20):
        generator = torch.Generator().manual_seed(0)
        self.actions = 0.4 * torch.randn(before + STEPS, ROWS, env.num_actions, generator=generator)
        for action in self.actions[:before]:
            env.step(action)
        self.actions = self.actions[before:]
        self.worlds, self.obs = [imagination.read_worlds()], [self._look(env)]
        self.rewards, self.done, self.changes = [], torch.zeros(ROWS, dtype=torch.bool), []
        self.lasting = []
        for action in self.actions:
            _, reward, done, _ = env.step(action)
            self.worlds.append(imagination.read_worlds())
            self.obs.append(self._look(env))
            self.rewards.append(reward.clone())
            self.done = self.done | done.bool()
            self.lasting.append(~self.done)
            assert torch.equal(self.worlds[-1], self.obs[-1]["world"])
            self.changes.append(imagination.measure_changes(*self.worlds[-2:]))

    def _look(self, env):
        return {name: value.clone() for name, value in env.get_observations().items()}


TASKS = ("cartpole", "go2_flat", "walker2d_v5", "ant_v5", "humanoid_v5", "panda_lift", "panda_drawer")


@pytest.fixture(params=chosen(TASKS, "cartpole"))
def recorded(request):
    env = make_env(with_world(make_task(request.param)), num_envs=ROWS, device="cpu", seed=1)
    imagination = Imagination(env, ROWS, STEPS)
    yield imagination, Recorded(env, imagination)
    env.close()


def imagine(imagination, recorded, actions, changes):
    obs = {name: value for name, value in recorded.obs[0].items() if name != "world"}
    token, found = imagination.begin(recorded.worlds[0], obs), []
    for t in range(STEPS):
        found.append(imagination.step(t, actions[t], changes[t], token))
        token = found[-1].token
    return found


def test_with_the_changes_of_the_physics_a_step_is_the_simulators(recorded):
    """Noise, too: it is drawn from the same streams."""
    imagination, real = recorded
    found = imagine(imagination, real, real.actions, real.changes)
    for t, step in enumerate(found):
        rows = real.lasting[t]
        assert rows.sum() > ROWS / 2
        assert torch.allclose(step.reward[rows], real.rewards[t][rows], atol=1e-6)
        assert not step.ended[rows].any()
        assert set(step.obs) == set(real.obs[0]) - {"world"}
        for name, value in step.obs.items():
            assert torch.allclose(value[rows], real.obs[t + 1][name][rows], atol=2e-5), (t, name)
        assert torch.allclose(step.speeds[rows], imagination.speeds_of(real.worlds[t + 1])[rows], atol=2e-5)


def test_gradients_are_those_of_finite_differences(recorded):
    imagination, real = recorded
    torch.set_num_threads(1)
    generator = torch.Generator().manual_seed(1)
    weights = {
        name: torch.randn(value.shape[1], generator=generator) for name, value in real.obs[0].items() if name != "world"
    }

    # A number of thousands has no sine in float32, and moves by more than its rounding.
    scales = {name: 1.0 + real.obs[0][name].abs() for name in weights}

    def score(actions, changes):
        found = imagine(imagination, real, actions, changes)
        seen = sum(
            ((step.obs[name] / scales[name]).sin() @ weight) for step in found for name, weight in weights.items()
        )
        return sum(step.reward + 0.1 * step.speeds.sin().sum(1) for step in found) + 0.1 * seen

    actions = [action.clone().requires_grad_() for action in real.actions]
    changes = [change.clone().requires_grad_() for change in real.changes]
    score(actions, changes).sum().backward()
    for given, size in ((actions, 1.0), (changes, 1e-2)):
        for t in range(STEPS - 1):
            direction, eps = size * torch.randn(given[t].shape, generator=generator), 0.02
            direction *= 1.0 + given[t].detach().abs()
            direction *= torch.rand(direction.shape, generator=generator) < 0.3  # One bound of many is a kink.
            sides = []
            for sign in (1.0, -1.0):
                with torch.no_grad():
                    moved = [value + sign * eps * direction * (k == t) for k, value in enumerate(given)]
                    sides.append(score(*((moved, changes) if given is actions else (actions, moved))).double())
            difference = (sides[0] - sides[1]) / (2.0 * eps)
            gradient = (given[t].grad * direction).sum(1).double()
            # Terms have kinks, at which single rows differ.
            assert (difference - gradient).abs().median() <= 0.01 * gradient.abs().median() + 1e-4


@pytest.mark.long
@pytest.mark.parametrize(("task", "reason"), [("panda_lift_vision", "images"), ("go2_team", "for several robots")])
def test_what_is_not_predicted_is_named(task, reason):
    env = make_env(get_task(task), num_envs=2, device="cpu", seed=1)
    with pytest.raises(ValueError, match=f"task={task}: .*{reason}"):
        Imagination(env, 2, 1)
    env.close()


def test_a_field_that_is_not_predicted_is_named():
    task = get_task("cartpole")
    line = "task=cartpole: its terms read imu_acc_now, which the model does not predict yet"
    assert why_not_imagined(task, ["qpos", "imu_acc_now"]) == line


def test_an_array_as_long_as_there_are_worlds_is_not_one_of_worlds():
    task = with_world(make_task("panda_lift"))
    bodies = make_scene(task).model.nbody
    env = make_env(task, num_envs=bodies, device="cpu", seed=1)
    assert len(env.operands().arrays["body_mass_nominal"]) == bodies
    assert "body_mass_nominal" not in fields_of(env)
    assert {"qpos", "object_pos_w", "contact_force"} <= set(fields_of(env))
    env.close()


@pytest.mark.long
def test_what_changes_only_when_it_is_touched_is_an_object_a_drawer_or_a_contact():
    for name, sizes in (("panda_lift", [12, 1, 1, 1, 1]), ("panda_drawer", None), ("go2_flat", [])):
        env = make_env(with_world(get_task(name)), num_envs=2, device="cpu", seed=1)
        imagination = Imagination(env, 2, 1)
        parts, gates = imagination.parts, imagination.gates
        columns = [column for gate in gates for column in gate]
        assert len(set(columns)) == len(columns), name
        if sizes is not None:
            assert [len(gate) for gate in gates] == sizes, name
        else:
            first = [parts[f"object joint {what}"].start for what in ("velocities", "positions")]
            assert first in gates
        env.close()


@pytest.mark.long
def test_a_place_is_predicted_by_its_move():
    """The world's own row is no part of it, and forces are predicted as they are."""
    env = make_env(with_world(make_task("ant_v5")), num_envs=2, device="cpu", seed=1)
    imagination = Imagination(env, 2, 1)
    row, part = imagination.carried["engine_xpos"], imagination.parts["engine_xpos"]
    bodies = env.scene.model.nbody - 1
    assert (row.stop - row.start, part.stop - part.start) == (3 * bodies, 3 * bodies)
    before = imagination.read_worlds()
    assert torch.equal(before[:, row], env.state.engine_xpos[:, 1:].reshape(2, -1).float())
    after = before.clone()
    after[:, row] += torch.arange(3.0 * bodies)
    after[:, imagination.carried["engine_cfrc_ext"]] = 7.0
    change = imagination.measure_changes(before, after)
    assert torch.allclose(change[:, part], torch.arange(3.0 * bodies).expand(2, -1), atol=1e-5)
    assert bool((change[:, imagination.parts["engine_cfrc_ext"]] == 7.0).all())
    env.close()


@pytest.mark.long
def test_a_model_sees_the_velocities_that_observations_cut_off():
    for name, speeds in (("walker2d_v5", 9), ("hopper_v5", 6), ("half_cheetah_v5", 0), ("go2_flat", 0)):
        env = make_env(with_world(get_task(name)), num_envs=2, device="cpu", seed=1)
        imagination = Imagination(env, 2, 1)
        env.state.qvel[:] = 50.0
        assert imagination.speeds_of(imagination.read_worlds()).tolist() == [[50.0] * speeds] * 2, name
        env.close()
