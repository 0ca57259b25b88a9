"""Terms become kernels: each task its own, parameters outside the compiled text."""

import re
from typing import Any

import pytest
import torch
import warp as wp
from robot_rl_envs.codegen.template import STEP
from robot_rl_envs.imagination.compiling import IMAGINED
from robot_rl_envs.mdp import observations, rewards
from robot_rl_envs.task import Event, Observation, ObservationGroup, Reward
from robot_rl_envs.terms import event, observation, reward


def step(doll, **weights):
    return doll.step(qpos=[0.5, 1.0], qvel=[2.0, 3.0])


def test_two_tasks_of_the_same_terms_in_another_order_share_no_kernel(puppet, cart_task):
    """Both are alive at once and step in turn: each adds up its own terms and orders its own observation."""
    terms = {
        "pos": Observation(observations.one_joint_pos, joint=0),
        "speed": Observation(observations.joint_vel),
    }
    scores = {
        "x": Reward(rewards.centred, weight=1.0, joint=0),
        "v": Reward(rewards.joint_vel_sq, weight=1.0, joint=1),
    }
    one = puppet(cart_task(observations={"actor": ObservationGroup(terms=terms)}, rewards=scores))
    turned = {name: terms[name] for name in ("speed", "pos")}
    two = puppet(
        cart_task(
            observations={"actor": ObservationGroup(terms=turned)},
            rewards={name: scores[name] for name in ("v", "x")},
        )
    )
    for _ in range(2):
        assert step(one)[0]["actor"][0].tolist() == [0.5, 2.0, 3.0]
        assert step(two)[0]["actor"][0].tolist() == [2.0, 3.0, 0.5]
    assert one.state.reward_sums[0].tolist() == pytest.approx([2 * 0.025, 2 * 0.9])
    assert two.state.reward_sums[0].tolist() == pytest.approx([2 * 0.9, 2 * 0.025])


def test_the_same_names_may_mean_other_functions_and_weights(puppet, cart_task):
    one = puppet(cart_task(rewards={"term": Reward(rewards.alive, weight=1.0)}))
    two = puppet(cart_task(rewards={"term": Reward(rewards.centred, weight=4.0, joint=0)}))
    assert step(one)[1].tolist() == pytest.approx([0.1, 0.1])
    assert step(two)[1].tolist() == pytest.approx([0.1, 0.1])
    assert step(puppet(cart_task(rewards={"term": Reward(rewards.alive, weight=3.0)})))[1][0] == pytest.approx(0.3)


def test_names_that_resemble_each_other_or_the_kernels_are_kept_apart(puppet, cart_task):
    """Paths that differ only in a dot, and a term called like the text's own functions."""
    x, v = Observation(observations.one_joint_pos, joint=0), Observation(observations.one_joint_pos, joint=1)
    groups = {
        "actor": ObservationGroup(terms={"a_b": x, "observe_actor": v}),
        "actor_a": ObservationGroup(terms={"b": v, "observe": x}),
    }
    obs = step(puppet(cart_task(observations=groups, rewards={"derive": Reward(rewards.alive, weight=1.0)})))[0]
    assert obs["actor"][0].tolist() == [0.5, 1.0]
    assert obs["actor_a"][0].tolist() == [1.0, 0.5]


def make_bonus(value):
    """A reward that is made again under the same name, as when a notebook's cell is run again."""
    if value == 1:

        @reward
        @wp.func
        def bonus(s: Any, i: int) -> float:
            """One."""
            return 1.0

    else:

        @reward
        @wp.func
        def bonus(s: Any, i: int) -> float:
            """Two."""
            return 2.0

    return bonus


def test_a_new_term_of_the_same_name_takes_effect(puppet, cart_task):
    values = [step(puppet(cart_task(rewards={"bonus": Reward(make_bonus(k), weight=1.0)})))[1][0] for k in (1, 2, 1)]
    assert [value.item() for value in values] == pytest.approx([0.1, 0.2, 0.1])


@pytest.fixture
def compiled(monkeypatch, tmp_path):
    """compiled(): the files that compilations have left so far, in a cache of the test's own."""
    wp.init()
    monkeypatch.setattr(wp.config, "kernel_cache_dir", str(tmp_path))
    return lambda: {path for path in tmp_path.rglob("*") if path.is_file()}


def test_a_new_weight_takes_effect_without_a_compilation(puppet, cart_task, compiled):
    doll = puppet(cart_task(rewards={"x": Reward(rewards.centred, weight=1.0, joint=0)}))
    assert step(doll)[1][0].item() == pytest.approx(0.025)
    before = compiled()
    assert doll.env.params()["rewards.x.weight"] == 1.0
    doll.env.set_param("rewards.x.weight", -4.0)
    assert step(doll)[1][0].item() == pytest.approx(-0.1)
    doll.env.set_param("rewards.x.joint", 1)
    assert step(doll)[1][0].item() == pytest.approx(-0.4)
    assert compiled() == before


def test_a_task_with_other_figures_is_compiled_no_second_time(puppet, cart_task, compiled):
    def build(weight, std, limit):
        task = cart_task(
            rewards={"compiled_here": Reward(rewards.centred, weight=weight, joint=0)},
            observations={"actor": ObservationGroup(terms={"v": Observation(observations.joint_vel, scale=std)})},
            episode_length_s=limit,
        )
        return step(puppet(task))

    build(1.0, 1.0, 1.0)
    before = compiled()
    assert before
    assert build(2.0, 0.5, 3.0)[0]["actor"][0].tolist() == [1.0, 1.5]
    assert compiled() == before


def test_a_figure_that_two_stages_read_is_one_parameter(puppet, go2_task):
    """A command is drawn at resets and at its own times: in the same ranges, whoever changes them."""
    from robot_rl_envs.mdp import commands
    from robot_rl_envs.task import Command

    ranges = dict.fromkeys(("vx_lo", "vx_hi", "vy_lo", "vy_hi", "yaw_lo", "yaw_hi", "standing"), 0.0)
    doll = puppet(go2_task(commands={"velocity": Command(commands.uniform_velocity, resample_s=(5.0, 5.0), **ranges)}))
    names = [path for path in doll.env.params() if path.startswith("commands.")]
    assert names == [f"commands.velocity.{name}" for name in ("resample_s.0", "resample_s.1", *ranges)]
    for path, value in (("resample_s.0", 0.06), ("resample_s.1", 0.06), ("vx_lo", 0.7), ("vx_hi", 0.7)):
        doll.env.set_param(f"commands.velocity.{path}", value)
    doll.env.reset()
    assert doll.state.command[:, 0].tolist() == pytest.approx([0.7, 0.7])
    assert doll.state.command_left_s[:, 0].tolist() == pytest.approx([0.06, 0.06])


def test_every_figure_of_a_task_is_a_parameter(puppet, cart_task):
    doll = puppet(cart_task())
    params = doll.env.params()
    want = {
        "rewards.alive.weight": 1.0,
        "terminations.off_rail.limit": 1.0,
        "events.cart.centre": 0.25,
        "observations.actor.speed.scale": 1.0,
        "observations.actor.speed.clip": 100.0,
        "observations.actor.speed.noise": 0.0,
        "actions.clip": 10.0,
        "episode_length_s": 1.0,
    }
    assert want.items() <= params.items()
    with pytest.raises(ValueError, match="no parameter 'rewards.alife.weight' in task 'cart'"):
        doll.env.set_param("rewards.alife.weight", 1.0)


@observation(size=2)
@wp.func
def where_it_was_put(s: Any, i: int, j: int, gain: float) -> float:
    """A term of the test's own."""
    return gain * float(i + 10 * j)


@event(writes="state")
@wp.func
def put_by_index(s: Any, i: int, rng: wp.uint32, step: float):
    """Put the slider at the world's index."""
    s.qpos[i, 0] = step * float(i)


def test_terms_of_ones_own_need_no_registration(puppet, cart_task):
    group = ObservationGroup(terms={"mine": Observation(where_it_was_put, gain=0.5)})
    doll = puppet(cart_task(observations={"actor": group}, events={"put": Event(put_by_index, step=0.25)}), num_envs=3)
    assert doll.env.get_observations()["actor"].tolist() == [[0.0, 5.0], [0.5, 5.5], [1.0, 6.0]]
    assert doll.state.qpos[:, 0].tolist() == [0.0, 0.25, 0.5]


def test_a_joint_without_limits_has_no_limit_to_break(puppet, cart_task):
    doll = puppet(cart_task(rewards={"limits": Reward(rewards.joint_limits, weight=1.0, soft=0.5)}), num_envs=1)
    # the slider's range is +-1.8 m, the hinge turns freely
    _, value, dones, _ = doll.step(qpos=[0.95, 50.0], qvel=[0.0, 0.0])
    assert value[0].item() == pytest.approx(0.05 * 0.1, rel=1e-4)
    assert not dones.any()
    assert torch.isfinite(doll.env.get_observations()["actor"]).all()


@pytest.mark.parametrize("template", [STEP, IMAGINED])
def test_each_section_of_a_template_is_written_somewhere(template):
    lines = (line for section in template.sections.values() for line in section)
    written = {name for line in lines for name in re.findall(r"^ *\{(\w+)\}", line)}
    written |= set(re.findall(r'"(\w+)"', "".join(path.read_text() for path in template.path.parent.glob("*.py"))))
    assert template.sections.keys() - written == set()
