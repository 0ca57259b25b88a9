"""Learning through a learned world: the model, the gradient, a resumed run, and what it refuses."""

import dataclasses
import json

import pytest
import torch
from robot_rl_envs.imagination.worlds import with_world
from robot_rl_envs.make import make_env
from robot_rl_tasks.registry import get_task

from robot_rl.cli.main import main
from robot_rl.errors import UserError
from robot_rl.learn.algorithms.world_model.config import WorldModelCfg, WorldModelLearnerCfg
from robot_rl.learn.algorithms.world_model.dynamics import ENDS, Dynamics, Prediction, Range, Sizes
from robot_rl.learn.algorithms.world_model.steps import ROW_CLIP, Steps, Views, _clip_rows
from robot_rl.learn.algorithms.world_model.world_model import STATISTICS, _imagine
from robot_rl.learn.make_trainer import make_trainer
from robot_rl.learn.ranks import SINGLE_PROCESS
from robot_rl.settings import NetworkCfg
from robot_rl.view.report.page import write_report
from tests.resuming import assert_same_run, in_two

SMALL = NetworkCfg(hidden=(8,))
OWN = WorldModelCfg(horizon=3, rows=5, policy_steps=2, model_steps=2, batch=16, hidden=(8,), replay=600, warm_up=20)


def make_cfg(**changes):
    return WorldModelLearnerCfg(num_steps=7, actor=SMALL, critic=SMALL, world_model=OWN, **changes)


@pytest.fixture
def make():
    made = []

    def one(task="cartpole"):
        made.append(make_env(with_world(get_task(task)), num_envs=6, engine="mujoco", seed=4, num_threads=1))
        return made[-1]

    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield one
    torch.set_num_threads(threads)
    for env in made:
        env.close()


def test_a_resumed_run_is_the_run(make, tmp_path):
    assert_same_run(*in_two(make, make_cfg(), tmp_path))


def test_the_memory_holds_what_each_step_changed(make):
    """The last step of an episode, too: its state is that before the reset."""
    env = make()
    runner = make_trainer(env, make_cfg(), seed=3)
    rollout, ends = runner.collect(), 0
    for _ in range(40):
        runner.algorithm.update(rollout, 0.0)
        rollout = runner.collect()
        ends += int((rollout.done & ~rollout.time_out).sum())
    algorithm = runner.algorithm
    kept = algorithm.replay.state_dict()
    columns, parts = algorithm.imagination.carried, algorithm.imagination.parts
    before, change = kept["world"][..., columns["qvel"]], kept["change"][..., parts["joint velocities"]]
    following = kept["world"].roll(-1, 0)[..., columns["qvel"]]
    done = kept["flags"][..., 0]
    same = ((before + change) - following).abs().amax(-1) < 1e-4
    newest = (int(kept["counts"][0]) - 1) % len(done)
    same[newest] = True
    assert same[~done].all()
    assert ends > 0
    assert not same[done & kept["flags"][..., 1]].any()


def test_the_policys_step_raises_the_imagined_return(make):
    runner = make_trainer(make(), make_cfg(), seed=3)
    for _ in range(6):
        runner.algorithm.update(runner.collect(), 0.0)
    algorithm = runner.algorithm
    algorithm._optimizers["policy"].learning_rate.fill_(1e-3)
    stream, weights = algorithm.draws.get_state(), algorithm.actor.state_dict()
    before = {name: tensor.clone() for name, tensor in weights.items()}
    target = {name: tensor.clone() for name, tensor in algorithm.target.state_dict().items()}
    found = []
    for _ in range(2):
        algorithm.draws.set_state(stream)
        algorithm.target.load_state_dict(target)
        found.append(float(algorithm.improve_policy()[2]))
    assert found[1] > found[0]
    assert any(not torch.equal(before[name], tensor) for name, tensor in algorithm.actor.state_dict().items())


def test_the_critic_is_learned_in_several_steps_from_the_same_ones(make):
    """They see all of the imagined steps, and the value of what they see moves towards the same targets."""
    off = []
    for steps in (1, 6):
        runner = make_trainer(make(), make_cfg(), seed=3)
        runner.algorithm.update(runner.collect(), 0.0)
        algorithm = runner.algorithm
        algorithm.cfg = dataclasses.replace(OWN, critic_steps=steps)
        algorithm.target.load_state_dict(algorithm.critic.state_dict())
        before = int(algorithm._optimizers["critic"].state_dict()["step"])
        algorithm.improve_policy()
        assert int(algorithm._optimizers["critic"].state_dict()["step"]) == before + steps
        moved = zip(algorithm.critic.parameters(), algorithm.target.parameters(), strict=True)
        off.append(sum(float((new - slow.detach()).abs().detach().sum()) for new, slow in moved))
    assert off[1] > 2.0 * off[0]  # The target is the slow copy of all of them.
    # Of one imagined step there is no second half.
    algorithm.cfg, algorithm.horizon = dataclasses.replace(algorithm.cfg, horizon=1), 1
    assert torch.isfinite(algorithm.improve_policy()).all()


def test_the_model_learns_contacts_as_what_they_are():
    parts = {"joint velocities": slice(0, 1), "contacts": slice(1, 2), "contact forces": slice(2, 3)}
    model = Dynamics(Sizes(2, 1, parts), (16,), seed=0)
    generator = torch.Generator().manual_seed(0)
    obs, action = torch.randn(256, 2, generator=generator), torch.randn(256, 1, generator=generator)
    touches = (obs[:, :1] > 0.0).float()
    ends = (obs[:, 1:] > 1.0).float()
    change = torch.cat((action * obs[:, 1:], touches, 50.0 * touches, ends), 1)
    model.outputs.update(change)
    model.possible.update(change[:, :3], torch.ones(256, dtype=torch.bool), SINGLE_PROCESS)
    optimizer, weight = torch.optim.Adam(model.parameters(), lr=1e-2), torch.ones(256)
    losses = []
    for _ in range(200):
        optimizer.zero_grad()
        loss = model.loss(obs, action, change, weight)
        loss.backward()
        optimizer.step()
        losses.append(float(loss.detach()))
    assert losses[-1] < 0.2 * losses[0]
    found = model(obs, action)
    assert set(found[:, 1].unique().tolist()) == {0.0, 1.0}
    assert (found[:, 1] == touches[:, 0]).float().mean() > 0.95
    assert (found[:, 2] >= 0.0).all()
    prediction, there = Prediction(model, obs[:, :0]), obs.clone().requires_grad_()
    written = prediction.forward(obs, action)
    assert torch.allclose(written, found, atol=1e-4)
    by_obs, _ = prediction.back(torch.tensor([0.0, 1.0, 0.0]).repeat(256, 1), torch.full((256,), 2.0))
    chances = torch.sigmoid(model.raw(there, action))
    (expected,) = torch.autograd.grad((chances[:, 1] + 2.0 * chances[:, 3]).sum(), there)
    assert torch.allclose(by_obs, expected, atol=1e-5)
    assert ((chances[:, 3:] > 0.5) == (ends > 0.5)).float().mean() > 0.95


def test_what_nothing_touches_stays_as_it_is_in_the_model():
    """To the bit, or an object would float away; whether it is touched has the gradient of the probability."""
    parts = {"joint velocities": slice(0, 1), "object": slice(1, 3), "touches": slice(3, 4)}
    model = Dynamics(Sizes(2, 1, parts, gates=[[1, 2], [3]]), (16,), 0)
    generator = torch.Generator().manual_seed(0)
    obs, action = torch.randn(256, 2, generator=generator), torch.randn(256, 1, generator=generator)
    moves = (obs[:, :1] > 0.0).float()
    change = torch.cat((action * obs[:, 1:], moves * (3.0 + obs), 9.0 * moves, torch.zeros(256, 1)), 1)
    model.outputs.update(change)
    model.possible.update(change[:, :4], torch.ones(256, dtype=torch.bool), SINGLE_PROCESS)
    optimizer, losses = torch.optim.Adam(model.parameters(), lr=1e-2), []
    for _ in range(200):
        optimizer.zero_grad()
        loss = model.loss(obs, action, change, torch.ones(256))
        loss.backward()
        optimizer.step()
        losses.append(float(loss.detach()))
    assert losses[-1] < 0.2 * losses[0]
    there = obs.clone().requires_grad_()
    found = model(there, action)
    opened = (found[:, 1:3] != 0.0).all(1)
    assert ((found[:, 1:3] == 0.0).all(1) == ~opened).all()
    assert (opened == (moves[:, 0] > 0.0)).float().mean() > 0.95
    assert (found[opened, 1:3] - change[opened, 1:3]).abs().mean() < 0.3
    assert (found[:, 3] - change[:, 3]).abs().mean() < 1.0
    grad = torch.randn(256, 4, generator=generator)
    (expected,) = torch.autograd.grad((found * grad).sum(), there)
    prediction = Prediction(model, obs[:, :0])
    assert torch.allclose(prediction.forward(obs, action), found, atol=1e-4)
    by_obs, _ = prediction.back(grad.clone(), torch.zeros(256))
    assert torch.allclose(by_obs, expected, atol=1e-4)
    closed = (prediction.forward(obs, action)[:, 1:3] == 0.0).all(1)
    by_obs, _ = prediction.back(torch.tensor([0.0, 1.0, 0.0, 0.0]).repeat(256, 1), torch.zeros(256))
    assert closed.any()
    assert by_obs[closed].abs().max() > 0.0


def test_what_is_only_watched_weighs_as_much_as_the_state():
    parts = {"joint velocities": slice(0, 3), "engine_cvel": slice(3, 9), "engine_xpos": slice(9, 15)}
    shares = Dynamics(Sizes(2, 1, parts), (8,), seed=0).shares
    third = 1.0 / 3.0
    assert torch.allclose(shares, torch.tensor([1.0] * 3 + [third] * 12 + [1.0]) / 8.0)
    state_only = Dynamics(Sizes(2, 1, {"joint velocities": slice(0, 3), "engine_cvel": slice(3, 4)}), (8,), seed=0)
    assert torch.allclose(state_only.shares, torch.full((5,), 0.2))


def test_bounds_hold_what_was_seen_and_a_margin():
    seen = Range(2, 0.1)
    assert [bound.tolist() for bound in seen.bounds()] == [[-torch.inf] * 2, [torch.inf] * 2]
    seen.update(
        torch.tensor([[0.0, -1.0], [10.0, 3.0], [99.0, 99.0]]), torch.tensor([True, True, False]), SINGLE_PROCESS
    )
    low, high = seen.bounds()
    assert torch.allclose(low, torch.tensor([-1.0, -1.4]))
    assert torch.allclose(high, torch.tensor([11.0, 3.4]))
    hardly = Range(1, 1.0, least=0.01)
    hardly.update(torch.tensor([[5.0]]), torch.ones(1, dtype=torch.bool), SINGLE_PROCESS)
    assert torch.allclose(torch.cat(hardly.bounds()), torch.tensor([4.99, 5.01]))


def test_a_mirrored_world_changes_by_the_mirrored_change(make):
    cfg = WorldModelLearnerCfg(num_steps=7, symmetry="network", actor=SMALL, critic=SMALL, world_model=OWN)
    env = make("go2_flat")
    runner = make_trainer(env, cfg, seed=3)
    for _ in range(3):
        runner.algorithm.update(runner.collect(), 0.0)
    algorithm = runner.algorithm
    batch = algorithm.replay.draw_steps(64, torch.Generator().manual_seed(0))
    obs, action = env.mirror["critic"], env.mirror["action"]
    change = algorithm.imagination.mirror
    context = algorithm.imagination.context_mirror
    parts = (
        (batch["critic"], obs),
        (batch["world"][:, algorithm.imagination.context], context),
        (batch["action"], action),
    )
    critic, around, act = (value[:, perm] * sign for value, (perm, sign) in parts)
    images = torch.cat((critic, around), 1), act
    found = algorithm.model.raw(torch.cat((parts[0][0], parts[1][0]), 1), batch["action"])
    mirrored = algorithm.model.raw(*images)
    assert torch.allclose(mirrored[:, :-1], found[:, :-1][:, change[0]] * change[1], atol=1e-5)
    assert torch.allclose(mirrored[:, -1], found[:, -1], atol=1e-5)
    assert found.std() > 1e-3
    parts = algorithm.imagination.parts
    assert sorted(change[0].tolist()) == list(range(algorithm.imagination.change_width))
    forces = change[0][parts["forces"]] - parts["forces"].start
    assert torch.equal(forces, action[0])
    assert torch.equal(change[1][parts["forces"]], action[1])
    assert change[1][parts["base velocity"]].tolist() == [1.0, -1.0, 1.0]
    assert change[1][parts["base rotation"]].tolist() == [-1.0, 1.0, -1.0]


def test_no_predicted_change_is_beyond_those_that_were_seen():
    model = Dynamics(Sizes(2, 1, {"joint velocities": slice(0, 1)}), (8,), seed=0)
    change = torch.randn(64, 1, generator=torch.Generator().manual_seed(0))
    model.outputs.update(torch.cat((change, torch.zeros(64, 1)), 1))
    model.possible.update(change, torch.ones(64, dtype=torch.bool), SINGLE_PROCESS)
    with torch.no_grad():
        model.body.layers[-1].weight.mul_(1e6)
    found = model(torch.randn(64, 2), torch.randn(64, 1))
    low, high = model.possible.bounds()
    assert (found >= low).all()
    assert (found <= high).all()
    assert (found == high).any() or (found == low).any()


def test_a_step_into_the_unknown_counts_for_nothing(make):
    runner = make_trainer(make(), make_cfg(), seed=3)
    for _ in range(4):
        runner.algorithm.update(runner.collect(), 0.0)
    algorithm = runner.algorithm
    algorithm.cfg.entropy_coef = 0.0
    before = dict(zip(STATISTICS, algorithm.improve_policy().tolist(), strict=True))
    assert before["policy/gradient_norm"] > 0.0
    assert before["model/left"] < 1.0
    for bounds in (algorithm.frozen.known, algorithm.frozen.reached):
        bounds.low.fill_(0.0)
        bounds.high.fill_(0.0)
    after = dict(zip(STATISTICS, algorithm.improve_policy().tolist(), strict=True))
    assert (after["model/left"], after["policy/gradient_norm"], after["policy/imagined_return"]) == (1.0, 0.0, 0.0)


def test_what_hardly_anything_but_an_end_has_is_known_from_the_ends(make):
    runner = make_trainer(make(), make_cfg(), seed=3)
    rollout = runner.collect()
    rollout.done[-1, 0], rollout.time_out[-1, 0], rollout.has_final_obs = True, False, True
    rollout.ends["world"][-1] = rollout.groups["world"][-1]
    rollout.final_obs[-1] = rollout.critic_obs[-1]
    rollout.final_obs[-1, 0, 0] += 1000.0
    runner.algorithm.update(rollout, 0.0)
    model, obs = runner.algorithm.model, rollout.critic_obs[0, :1].clone()
    assert model.reached.high[0] == rollout.final_obs[-1, 0, 0] > model.known.high[0] + 900.0
    beyond = float(3.0 * model.known.high[1] - 2.0 * model.known.low[1])
    for column, value, leaves in ((0, 500.0, False), (0, 5000.0, True), (1, beyond, True)):
        there = obs.clone()
        there[0, column] = value
        assert model.leaves(there).tolist() == [leaves], (column, value)


def test_the_horizon_is_as_long_as_the_gap_allows(make):
    own = dataclasses.replace(OWN, horizon=6, least_horizon=2, max_gap=0.3)
    runner = make_trainer(make(), WorldModelLearnerCfg(num_steps=7, actor=SMALL, critic=SMALL, world_model=own), seed=3)
    algorithm = runner.algorithm
    for gaps, horizon in (([0.1, 0.2, 0.3, 0.2, 0.4, 0.1], 4), ([0.0] * 6, 6), ([0.9] * 6, 2)):
        state = algorithm.state() | {"gaps": torch.tensor(gaps)}
        algorithm.load_state(state)
        assert algorithm.horizon == horizon
    for _ in range(3):
        found = algorithm.update(runner.collect(), 0.0)
    assert float(found["model/horizon"]) == 2.0
    assert (algorithm.gaps < 0.9).any()


def test_the_models_loss_over_several_steps_goes_down(make):
    own = dataclasses.replace(OWN, model_horizon=3, model_steps=1)
    cfg = WorldModelLearnerCfg(num_steps=7, actor=SMALL, critic=SMALL, world_model=own)
    algorithm = (runner := make_trainer(make("go2_flat"), cfg, seed=3)).algorithm
    for _ in range(4):
        algorithm.update(runner.collect(), 0.0)
    stream, losses = algorithm.model_draws.get_state(), []
    optimizer = torch.optim.Adam(algorithm.model.parameters(), lr=3e-3)
    for _ in range(30):
        algorithm.model_draws.set_state(stream)
        optimizer.zero_grad()
        loss = algorithm._lose_ahead(algorithm._ahead)
        loss.backward()
        optimizer.step()
        losses.append(float(loss.detach()))
    assert losses[-1] < 0.9 * losses[0]


def test_one_rows_gradient_does_not_outweigh_the_others():
    grad = torch.tensor([[3.0, 4.0], [0.0, 5.0], [-5.0, 0.0], [0.0, 0.0], [3e6, 4e6]])
    found = _clip_rows(grad)
    assert torch.equal(found[:4], grad[:4])
    assert torch.allclose(found[4], ROW_CLIP * torch.tensor([3.0, 4.0]))
    assert torch.equal(_clip_rows(torch.zeros(3, 2)), torch.zeros(3, 2))


def _by_autograd(algorithm, start, noise, grad, by_ends, entropy_coef):
    """Return what `Steps` computes, from operations that torch differentiates."""
    actor, model, imagination = algorithm.actor, algorithm.frozen, algorithm.imagination
    around = start["world"][:, imagination.context]

    seen, speeds = algorithm.views.groups(start), imagination.speeds_of(start["world"])
    critic = "critic" if "critic" in seen else "actor"
    token = imagination.begin(start["world"], seen)
    loss, entropy = 0.0, 0.0
    for t in range(len(noise)):
        params = actor.distribution.params(actor.body.plain(actor.encode(seen["actor"])))
        action = actor.distribution.to_env(actor.distribution.sample(params, noise[t]))
        entropy = entropy + actor.distribution.entropy(params).mean() / len(noise)
        known = torch.cat((seen[critic], speeds, around), 1)
        loss = loss + (by_ends[t] * torch.sigmoid(model.raw(known, action)[:, model.parts[ENDS]])[:, 0]).sum()
        step = imagination.step(t, action, model(known, action), token)
        token, seen, speeds = step.token, step.obs, step.speeds
        loss = loss + (grad[t] * step.reward).sum()
    actor.zero_grad()
    (loss + seen[critic].sum() - entropy_coef * entropy).backward()
    return {name: parameter.grad.clone() for name, parameter in actor.named_parameters()}


@pytest.mark.parametrize(
    ("task", "changes"),
    [
        pytest.param("go2_flat", {}, marks=pytest.mark.long),
        ("go2_flat", {"distribution": "squashed", "activation": "silu"}),
        pytest.param("walker2d_v5", {"distribution": "squashed"}, marks=pytest.mark.long),
        ("panda_lift", {"distribution": "squashed"}),
    ],
    ids=["gaussian", "squashed", "bounded speeds", "an object"],
)
def test_the_policys_gradient_is_that_of_autograd(task, changes, make, monkeypatch):
    monkeypatch.setattr("robot_rl.learn.algorithms.world_model.steps.ROW_CLIP", 1e9)  # It is no part of the gradient.
    actor = NetworkCfg(hidden=(8, 8), **changes)
    more = {"go2_flat": {"symmetry": "network"}, "walker2d_v5": {"critic_groups": ("actor",)}}.get(task, {})
    cfg = WorldModelLearnerCfg(num_steps=7, actor=actor, critic=SMALL, world_model=OWN, **more)
    runner = make_trainer(make(task), cfg, seed=3)
    for _ in range(4):
        runner.algorithm.update(runner.collect(), 0.0)
    algorithm = runner.algorithm
    start = algorithm.replay.draw_steps(OWN.rows, algorithm.draws)
    grad = torch.randn(3, OWN.rows, generator=torch.Generator().manual_seed(0))
    noise = torch.randn(3, OWN.rows, algorithm.actor.action_dim, generator=torch.Generator().manual_seed(1))
    expected = _by_autograd(algorithm, start, noise, grad, 0.5 * grad.flip(0), 0.1)
    algorithm.actor.zero_grad()
    imagined = (algorithm.frozen, algorithm.imagination, algorithm.views)
    steps = Steps(algorithm.actor, *imagined, torch.Generator().manual_seed(1))
    steps.forward(start, 3)
    steps.back(grad, 0.5 * grad.flip(0), torch.ones_like(start["critic"]), 0.1)
    for name, parameter in algorithm.actor.named_parameters():
        size = expected[name].abs().max()
        assert size > 0.0, name
        assert (parameter.grad - expected[name]).abs().max() < 1e-4 * size, name


def test_what_actor_and_critic_see_is_made_of_groups():
    cfg = make_cfg(actor_groups=("a",), critic_groups=("c", "a"))
    views = Views(cfg, {"a": 2, "b": 1, "c": 3})
    groups = [torch.randn(4, size, requires_grad=True) for size in (2, 1, 3)]
    seen = {who: views.of(who, groups) for who in ("actor", "critic")}
    assert torch.equal(seen["critic"], torch.cat((groups[2], groups[0]), 1))
    assert {name: value.shape[1] for name, value in views.groups(seen).items()} == {"a": 2, "c": 3}
    grads = {who: torch.randn_like(value) for who, value in seen.items()}
    torch.autograd.backward(list(seen.values()), list(grads.values()))
    found = views.back(grads)
    assert found[1] is None
    assert all(torch.allclose(found[i], groups[i].grad) for i in (0, 2))
    with pytest.raises(UserError, match="critic_groups: 'world' cannot be imagined; must be some of a, b"):
        Views(make_cfg(actor_groups=("a",), critic_groups=("a", "world")), {"a": 2, "b": 1})


TRAIN = ("train", "num_envs=4", "num_steps=4", "actor.hidden=[8]", "critic.hidden=[8]", "max_iterations=2", "run_id=a")


@pytest.mark.long
def test_a_run_exports_the_same_bundle(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    words = ("world_model.rows=4", "world_model.horizon=2", "world_model.warm_up=4", "world_model.replay=64")
    assert main([*TRAIN, "task=cartpole", "learner=world_model", *words]) == 0
    rows = [json.loads(line) for line in (tmp_path / "runs/cartpole/a/metrics.jsonl").read_text().splitlines()]
    assert {"model/gap", "model/bias", "model/horizon", "model/left", "model/loss", "policy/imagined_return"} <= set(
        rows[-1]
    )
    page = write_report(tmp_path / "runs/cartpole/a").read_text()
    assert "World model" in page
    assert "Model gap" in page
    assert "shortens the horizon" in page
    assert main(["export", "run=a"]) == 0
    assert main(["eval", "run=a", "episodes=2", "seconds=1"]) == 0


@pytest.mark.long
@pytest.mark.parametrize(
    ("task", "words", "line"),
    [
        ("gym:Pendulum-v1", (), "needs the state of robot-rl's own tasks, this one is of gymnasium; use learner=ppo"),
        ("panda_lift_vision", (), "task=panda_lift_vision: observes images; use learner=ppo"),
        ("go2_team", (), "task=go2_team is for several robots; use learner=mappo"),
        ("cartpole", ("world_model.hidden=[0]",), "world_model.hidden=0: must be in [1, 65536]"),
        ("cartpole", ("world_model.hidden=[]",), "must name at least one layer; such as [256, 256]"),
        ("cartpole", ("world_model.replay=8",), "world_model.replay=8: is less than a rollout of 4 steps of 4 worlds"),
        ("cartpole", ("world_model.replay=2000000000",), "GB, cpu has "),
        ("cartpole", ("actor.memory.kind=gru",), "learner=world_model lacks memory; use learner=ppo"),
        ("cartpole", ("symmetry=augment",), "learner=world_model mirrors no samples; use network or none"),
    ],
)
def test_what_it_cannot_learn_is_one_line(task, words, line, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main([*TRAIN, f"task={task}", "learner=world_model", *words]) != 0
    assert line in capsys.readouterr().err


def test_an_environment_without_a_state_is_refused():
    with pytest.raises(UserError, match="lacks a state to imagine from; use learner=ppo"):
        _imagine(object(), 1, 1)
