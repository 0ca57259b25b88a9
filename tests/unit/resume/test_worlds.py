"""Worlds that go on elsewhere: another number of worlds, other numbers in the task, an environment without a state."""

import pytest
import torch
from robot_rl_tasks.registry import get_task

from robot_rl.errors import UserError
from robot_rl.learn.checkpoints.worlds import redistributed
from robot_rl.learn.make_trainer import make_trainer
from tests.resuming import learner


def rows(first, count, width=2):
    return torch.arange(first * width, (first + count) * width, dtype=torch.float32).view(count, width)


@pytest.mark.parametrize(("ranks", "now"), [(1, 4), (2, 2), (1, 3), (1, 6), (4, 1), (2, 5)])
def test_worlds_are_dealt_out_in_the_order_of_all(ranks, now):
    """Two processes of two worlds each, dealt out to others: every old world is found at its own index."""
    parts = [{"x": rows(0, 2), "weights": torch.ones(7)}, {"x": rows(2, 2), "weights": torch.ones(7)}]
    dealt = []
    for rank in range(ranks):
        own = {"x": torch.full((now, 2), -1.0), "weights": torch.zeros(7), "sums": torch.zeros(3)}
        mine = redistributed(parts, own, size=2, first=rank * now, num_envs=now)
        assert mine.keys() == {"x", "weights"}
        assert mine["weights"].tolist() == [1.0] * 7
        dealt.append(mine["x"])
    together = torch.cat(dealt)
    kept = min(4, len(together))
    assert torch.equal(together[:kept], rows(0, 4)[:kept])
    assert (together[kept:] == -1.0).all()


def test_more_worlds_of_a_task(maker, tmp_path):
    """The worlds that were there are where they were, those that come are where new ones begin."""
    cfg = learner()
    few = make_trainer(maker("cartpole", 3)(), cfg, run_dir=tmp_path)
    few.train(1)
    fresh = maker("cartpole", 5)().state_dict()
    more = make_trainer(maker("cartpole", 5)(), cfg)
    before = more.env.state_dict()
    with pytest.raises(UserError, match="num_envs=5 in 1 process: the run has 3 in 1 process"):
        more.load(few.checkpoint)
    assert more.iteration == 0
    assert all(torch.equal(tensor, more.env.state_dict()[name]) for name, tensor in before.items())
    messages = []
    more.load(few.checkpoint, allow_resize=True, tell=messages.append)
    assert messages == ["3 worlds in 1 process become 5 in 1 process: the first 3 continue, 2 begin again"]
    old, new = few.env.state_dict(), more.env.state_dict()
    for name in ("engine", "state.qpos", "state.counter", "state.episode_length", "obs.actor"):
        assert torch.equal(new[name][:3], old[name])
        assert torch.equal(new[name][3:], fresh[name][3:])
    assert more.train(2)["iteration"] == 2


def test_a_parameter_that_was_changed_on_purpose_stays_changed(maker):
    """What was set while running goes on; what the task is built with now counts where it was built otherwise."""
    task = get_task("cartpole")
    env = maker(task)()
    env.set_param("rewards.centred.weight", -0.7)
    saved = env.state_dict()
    assert saved["params"].sum() != saved["params_built"].sum()
    same, other = maker(task)(), maker(task)()
    same.load_state_dict(saved)
    assert same.params()["rewards.centred.weight"] == pytest.approx(-0.7)
    name = "rewards.effort.weight"
    index = other.only._layout.params[name]
    other.only._layout.values[index] = -0.5  # As a task built with another weight has it.
    other.set_param(name, -0.5)
    other.load_state_dict(saved)
    assert other.params()[name] == pytest.approx(-0.5)
    assert other.params()["rewards.centred.weight"] == pytest.approx(-0.7)


def test_a_checkpoint_of_another_task_changes_nothing(maker, tmp_path):
    """It has the same networks, so that only the worlds differ."""
    cfg = learner(critic_groups=["actor"])
    hopper = make_trainer(maker("half_cheetah_v5")(), cfg, run_dir=tmp_path)
    hopper.train(1)
    walker = make_trainer(maker("walker2d_v5")(), cfg)
    before = {name: tensor.clone() for name, tensor in walker.networks().items()}
    worlds = walker.env.state_dict()
    with pytest.raises(UserError, match="its worlds have no .*; give fresh_worlds=true"):
        walker.load(hopper.checkpoint)
    assert walker.iteration == 0
    assert all(torch.equal(tensor, before[name]) for name, tensor in walker.networks().items())
    assert all(torch.equal(tensor, worlds[name]) for name, tensor in walker.env.state_dict().items())
    walker.load(hopper.checkpoint, fresh_worlds=True)
    assert walker.iteration == 1
    assert walker.train(2)["iteration"] == 2
