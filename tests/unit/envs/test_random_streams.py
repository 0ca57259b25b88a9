"""What a world draws depends on the seed, its global index, its step and the term: on nothing elsewhere."""

import pytest
import torch
from robot_rl_envs.make import make_env


def actions_for(env, step, first=0):
    """The same action for the same global world at the same step, whatever the environment's size."""
    generator = torch.Generator().manual_seed(step)
    return torch.randn(64, env.num_actions, generator=generator)[first : first + env.num_envs]


def record(env, steps, first=0, before_step=None):
    """(steps, N, ...) bits of a run: observation, reward, done, and all that was drawn."""
    rows = []
    for step in range(steps):
        if before_step is not None:
            before_step(env, step)
        obs, reward, dones, _ = env.step(actions_for(env, step, first))
        s = env.state
        model = [s.geom_friction.flatten(1), s.body_mass.flatten(1), s.actuator_gainprm.flatten(1)]
        row = [
            obs["actor"],
            reward[:, None],
            dones[:, None].float(),
            s.qpos,
            s.qvel,
            s.command,
            s.interval_left_s,
            *model,
        ]
        rows.append(torch.cat(row, dim=1).clone())
    return torch.stack(rows)


@pytest.fixture
def make(busy_task):
    return lambda **options: make_env(
        busy_task, engine="mujoco", **{"num_envs": 8, "seed": 5, "num_threads": 1} | options
    )


def test_the_same_seed_gives_the_same_bits_over_a_hundred_steps(make):
    one, two = record(make(), 100), record(make(), 100)
    assert torch.equal(one, two)
    assert not torch.equal(one, record(make(seed=6), 100))


def test_the_number_of_threads_changes_no_bit(make):
    assert torch.equal(record(make(num_threads=1), 100), record(make(num_threads=2), 100))
    assert torch.equal(record(make(num_threads=1), 20), record(make(num_threads=3), 20))


def test_worlds_spread_over_processes_are_those_of_one(make):
    """World k of eight is world k - 4 of the four that start at global index 4."""
    together = record(make(), 60)
    torch.testing.assert_close(record(make(num_envs=4), 60), together[:, :4], rtol=0, atol=0)
    apart = record(make(num_envs=4, world_offset=4), 60, first=4)
    torch.testing.assert_close(apart, together[:, 4:], rtol=0, atol=0)


def test_no_two_worlds_draw_the_same(make):
    env = make(num_envs=64)
    for name in ("command", "qpos", "body_mass", "actuator_gainprm"):
        rows = getattr(env.state, name).flatten(1)
        moving = rows[~torch.all(rows == 0, dim=1)]
        assert len(torch.unique(moving, dim=0)) == len(moving), name


def test_resets_elsewhere_change_nothing_here(make):
    """Worlds 1 and 5 are cut short now and then; the others never notice."""

    def cut(env, step):
        if step % 7 == 3:
            env.episode_length_buf[[1, 5]] = env.max_episode_length

    plain, disturbed = record(make(), 60), record(make(), 60, before_step=cut)
    others = [0, 2, 3, 4, 6, 7]
    assert torch.equal(plain[:, others], disturbed[:, others])
    assert not torch.equal(plain[:, [1, 5]], disturbed[:, [1, 5]])


def test_another_term_leaves_a_term_s_draws_alone(make, busy_task):
    """A stream belongs to a term's name: a run with one more event draws the same commands and frictions."""
    from robot_rl_envs.mdp import events
    from robot_rl_envs.task import Event

    plain = make()
    busy_task.events = {"more": Event(events.reset_joints, position=0.0, velocity=0.0), **busy_task.events}
    more = make()
    for name in ("command", "geom_friction", "body_mass", "qpos", "qvel"):
        assert torch.equal(getattr(plain.state, name), getattr(more.state, name)), name


def test_adjacent_seeds_share_no_stream(make):
    draws = torch.stack([make(seed=seed, num_envs=64).state.geom_friction[:, -1, 0] for seed in range(4)])
    assert len(torch.unique(draws)) == draws.numel()
    assert torch.corrcoef(draws).fill_diagonal_(0).abs().max() < 0.5
