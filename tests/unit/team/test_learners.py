"""Learners of teams: whose rows go through which policy, what has weight, and HAPPO's sequence."""

import pytest
import torch
from robot_rl_envs.make import make_env
from robot_rl_envs.task import Termination

from robot_rl.errors import UserError
from robot_rl.learn.algorithms import preset_learner, read_learner
from robot_rl.learn.make_trainer import make_trainer
from robot_rl.learn.networks.team import Members
from robot_rl.settings import apply_overrides
from tests.unit.team.terms import number_is

SMALL = {"actor.hidden": [8], "critic.hidden": [8], "num_steps": 6, "max_iterations": 2, "ppo.minibatches": 2}
HAPPO = "examples.happo:HAPPOLearnerCfg"
"""An algorithm from outside robot_rl."""


@pytest.fixture
def runner(puck_task):
    """make(name, count, fields, **settings): a training of so many pucks."""

    def make(name, count=3, fields=None, *, num_envs=4, run_dir=None, **settings):
        cfg = apply_overrides(read_learner({"name": name}), SMALL | settings)
        env = make_env(puck_task(count, **fields or {}), num_envs=num_envs, seed=1)
        return make_trainer(env, cfg, seed=3, run_dir=run_dir)

    return make


def test_rows_are_split_and_joined():
    members = Members([[2, 0], [1]])
    rows = torch.arange(12.0).view(6, 2)
    parts = members.split(rows)
    assert parts[0][:, 0].tolist() == [4.0, 0.0, 10.0, 6.0]
    assert parts[1][:, 0].tolist() == [2.0, 8.0]
    assert torch.equal(members.join(parts), rows)
    narrow = members.join([parts[0], parts[1][:, :1]])
    assert narrow[1].tolist() == [2.0, 0.0]


def test_each_robot_is_driven_by_its_own_policy(runner):
    training = runner("mappo", sharing="separate")
    actor, env = training.algorithm.actor, training.env
    assert actor.names == ("p0", "p1", "p2")
    obs = env.get_observations()["actor"]
    together = actor.mean(obs).view(4, 3, -1)
    for k, own in enumerate(actor.each()):
        torch.testing.assert_close(together[:, k], own.mean(obs.view(4, 3, -1)[:, k]))
    assert (together[:, 0] - together[:, 1]).abs().min() > 0


@pytest.mark.parametrize(
    ("name", "settings", "count"),
    [("mappo", {}, 1), ("mappo", {"sharing": "separate"}, 3), ("mappo", {"groups": [["p0", "p2"], ["p1"]]}, 2)],
)
def test_policies_and_the_ratio_that_they_begin_with(runner, name, settings, count):
    training = runner(name, **settings, **{"ppo.epochs": 1, "ppo.minibatches": 1})
    actor = training.algorithm.actor
    assert len(getattr(actor, "actors", [actor])) == count
    rollout = training.collect()
    batch = training.algorithm.make_batch(rollout)
    assert batch.num_units == 6 * 4  # Whole worlds: the critic values all robots of one in a pass.
    other = runner(name, **settings, view="others")
    assert other.algorithm.make_batch(other.collect()).group_size == (1 if count == 1 else 3)
    statistics = dict(
        zip(training.algorithm.statistics, training.algorithm.loss(batch, rollout.frozen)[1], strict=True)
    )
    assert float(statistics["loss/kl"]) == pytest.approx(0.0, abs=1e-6)
    assert float(statistics["loss/clip_share"]) == 0.0


def test_a_minibatch_of_several_policies_has_whole_worlds(runner):
    training = runner("mappo", sharing="separate")
    batch = training.algorithm.make_batch(training.collect())
    rows = batch.rows(torch.tensor([5, 2]))
    assert torch.equal(rows.action, torch.cat((batch.action[15:18], batch.action[6:9])))


@pytest.mark.parametrize("name", ["mappo", HAPPO])
def test_the_same_seed_gives_the_same_weights_and_a_resumed_run_is_the_run(runner, name, tmp_path):
    one, two = (runner(name, run_dir=path, sharing="separate") for path in (None, tmp_path / "run"))
    one.train()
    two.train(1)
    third = runner(name, run_dir=tmp_path / "run", sharing="separate")
    third.load(two.checkpoint)
    third.train()
    for part, network in one.modules().items():
        other = third.modules()[part].state_dict()
        assert all(torch.equal(tensor, other[key]) for key, tensor in network.state_dict().items()), part


def test_worlds_of_a_team_are_divided_again_whole(runner, tmp_path):
    first = runner("mappo", run_dir=tmp_path / "run")
    first.train(1)
    kept = first.env.state_dict()
    told = []
    other = runner("mappo", num_envs=6)
    other.load(first.checkpoint, allow_resize=True, tell=told.append)
    assert told == ["4 worlds in 1 process become 6 in 1 process: the first 4 continue, 2 begin again"]
    now = other.env.state_dict()
    assert torch.equal(now["worlds.engine"][:4], kept["worlds.engine"])
    assert torch.equal(now["puck.state.qpos"][:12], kept["puck.state.qpos"])
    other.train(2)


def test_attention_does_not_depend_on_the_number_of_robots_nor_on_their_order(runner):
    few, many = (runner("mappo", count=count, view="attention").algorithm.critic for count in (2, 4))
    many.load_state_dict(few.state_dict())
    obs = torch.randn(2, 5)
    padded = torch.cat((obs, torch.zeros(2, 5)))
    pair = few.value(obs)
    torch.testing.assert_close(many.value(padded)[:2], pair)  # Two that take no part change nothing.
    torch.testing.assert_close(many.value(padded[[2, 1, 0, 3]])[[2, 1]], pair)
    assert (few.value(torch.stack((obs[0], 2 * obs[1])))[0] - pair[0]).abs() > 1e-4  # The other one matters.


@pytest.mark.parametrize("view", ["world", "attention", "others", "own"])
def test_what_a_robot_does_after_it_dropped_out_has_no_weight(runner, view):
    falls = {"terminations": {"out": Termination(number_is, number=1.0, after=3.0, scope="robot")}}
    found = []
    for noise in (0.0, 50.0):
        training = runner("mappo", fields=falls, view=view)
        rollout = training.collect()
        assert rollout.has_invalid
        assert 0.05 < float(rollout.valid.float().mean()) < 0.95
        out = ~rollout.valid
        assert (rollout.critic_obs[:-1][out].abs().sum(-1) == 0).all() or view == "others"
        # A critic of whole worlds sees the zeros of a robot that is out.
        seen = () if view in ("world", "attention") else (rollout.critic_obs[:-1],)
        for tensor in (rollout.actor_obs, rollout.action, *seen):
            tensor[out] += noise
        rollout.reward[out] += noise
        training.algorithm.update(rollout, 0.0)
        found.append({name: tensor.clone() for name, tensor in training.algorithm.actor.state_dict().items()})
        critic = training.algorithm.critic.state_dict()
        found[-1] |= {f"critic.{name}": tensor.clone() for name, tensor in critic.items()}
    for name, tensor in found[0].items():
        torch.testing.assert_close(tensor, found[1][name], atol=1e-6, rtol=1e-5, msg=name)


def test_happo_multiplies_by_what_the_policies_before_changed(runner):
    training = runner(HAPPO, **{"ppo.epochs": 2})
    algorithm = training.algorithm
    rollout = training.collect()
    batch = algorithm.make_batch(rollout)
    ones = torch.ones(24)
    _, ratio = algorithm._improve(0, batch, rollout.frozen, ones)
    actor = algorithm.actor.each()[0]
    first = batch.action.view(24, 3, -1)[:, 0]
    params = actor.distribution.params(actor.outputs(batch.actor_in.view(24, 3, -1)[:, 0]))
    now = actor.distribution.log_prob(first, params)
    expected = torch.exp(now - batch.log_prob.view(24, 3)[:, 0])
    torch.testing.assert_close(ratio, expected.detach())
    assert (ratio - 1).abs().max() > 1e-4
    rows = algorithm._rows(1, batch, ratio)
    torch.testing.assert_close(rows.advantage, batch.advantage.view(24, 3)[:, 1] * ratio)
    assert torch.equal(rows.log_prob, batch.log_prob.view(24, 3)[:, 1])


def test_one_policy_moves_only_by_its_own_robots_samples(runner):
    training = runner(HAPPO)
    algorithm = training.algorithm
    rollout = training.collect()
    batch = algorithm.make_batch(rollout)
    before = [[p.detach().clone() for p in actor.parameters()] for actor in algorithm.actor.each()]
    algorithm._improve(1, batch, rollout.frozen, torch.ones(24))
    moved = [
        any(not torch.equal(a, b) for a, b in zip(old, actor.parameters(), strict=True))
        for old, actor in zip(before, algorithm.actor.each(), strict=True)
    ]
    assert moved == [False, True, False]


def test_what_builds_on_mappo_takes_the_presets_of_mappo_or_else_of_ppo():
    presets = {"ppo": {"num_steps": 5}}
    assert preset_learner(HAPPO, presets).num_steps == 5
    assert preset_learner(HAPPO, presets | {"mappo": {"num_steps": 7}}).num_steps == 7


@pytest.mark.parametrize(
    ("name", "settings", "line"),
    [
        ("mappo", {"groups": [["p0"], ["p1"]]}, "groups: robot 'p2' is in 0 of the 2 groups; give it to one"),
        ("mappo", {"groups": [["p0", "p1"], ["p1", "p2"]]}, "groups: robot 'p1' is in 2 of the 2 groups; leave it"),
        ("mappo", {"groups": [["p0", "p1", "px"]]}, "groups: 'px' is not one of the 3 robots p0, p1, p2"),
        (HAPPO, {"sharing": "role"}, "learner=happo: has 1 policy to improve in sequence, needs 2 or more"),
        ("mappo", {"sharing": "alone"}, "sharing=alone: must be one of role, separate$"),
        ("mappo", {"sharing": "rol"}, r"sharing=rol: must be one of role, separate; did you mean 'role'\?"),
        (HAPPO, {"overlap": True}, "overlap: true, but learner=.*HAPPOLearnerCfg cannot learn from an older policy's"),
        ("happo", {}, "learner=happo: was removed; use learner=examples.happo:HAPPOLearnerCfg"),
        ("ippo", {}, "learner=ippo: was removed; use learner=mappo view=own$"),
        ("joint", {}, "learner=joint: was removed; use learner=mappo$"),
    ],
)
def test_bad_settings(runner, name, settings, line):
    with pytest.raises(UserError, match=line):
        runner(name, **settings)


def test_a_team_needs_a_learner_for_teams_and_the_other_way_round(puck_task, capsys):
    from robot_rl.cli.main import main

    assert main(["train", "task=go2_pair_carry", "learner=ppo", "num_envs=2"]) == 2
    assert "learner=ppo: trains 1 robot, task=go2_pair_carry has 2: front, rear" in capsys.readouterr().err
    assert main(["train", "task=cartpole", "learner=mappo", "num_envs=2"]) == 2
    assert "learner=mappo: is for a team, task=cartpole has 1 robot; use learner=ppo" in capsys.readouterr().err
