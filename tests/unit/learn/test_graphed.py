"""Recorded steps, as far as they can be tested without a GPU: what they read, when they are recorded, what is not."""

from dataclasses import replace

import pytest
import torch

from robot_rl.learn.algorithms.ppo import graphed
from robot_rl.learn.algorithms.ppo.config import PPOCfg
from robot_rl.learn.algorithms.ppo.graphed import WARM_UP, GraphedStep, why_not_graphed
from robot_rl.learn.algorithms.ppo.ppo import PPO
from robot_rl.learn.auxiliaries.auxiliary import Auxiliaries, Auxiliary
from robot_rl.learn.dims import EnvSpec
from robot_rl.learn.networks.actor_critic import Actor, Critic
from robot_rl.learn.networks.distributions import Gaussian
from robot_rl.learn.ranks import ProcessGroup
from robot_rl.learn.rollout import make_rollout
from robot_rl.settings import NetworkCfg

from .conftest import Replaying

DIMS = EnvSpec(actor=5, critic=6, action=2)


class Pair(ProcessGroup):
    """Two processes that hold the same."""

    size = 2


def make(recorder=None, ranks=None, **ppo):
    cfg = NetworkCfg(hidden=(8, 8))
    generator = torch.Generator().manual_seed(3)
    actor = Actor(DIMS.actor, DIMS.action, cfg, generator=generator)
    critic = Critic(DIMS.critic, cfg, generator=generator)
    settings = PPOCfg(**{"epochs": 2, "minibatches": 3, **ppo})
    order = torch.Generator().manual_seed(4)
    algorithm = PPO(actor, critic, settings, generator=order, **({"ranks": ranks} if ranks else {}))
    if recorder is not None:
        algorithm.graphed = GraphedStep(algorithm, recorder)
    return algorithm


def make_rollouts(count, steps=6, worlds=10, seed=0):
    generator = torch.Generator().manual_seed(seed)
    for _ in range(count):
        rollout = make_rollout(steps, worlds, DIMS, "cpu")
        for tensor in (rollout.actor_obs, rollout.critic_obs, rollout.action, rollout.out, rollout.reward):
            tensor.normal_(generator=generator)
        rollout.record_policy(Gaussian(DIMS.action, NetworkCfg()), torch.zeros(DIMS.action))
        yield rollout


def weights(algorithm):
    return [*algorithm.actor.state_dict().values(), *algorithm.critic.state_dict().values()]


@pytest.mark.parametrize("ranks", [None, Pair()])
def test_recorded_steps_are_the_steps(ranks):
    """Every update has other samples and another policy that acted: a replay reads them from its own memory."""
    plain, recorder = make(ranks=ranks), Replaying()
    recorded = make(recorder, ranks=ranks)
    for rollout in make_rollouts(4):
        expected, found = plain.update(rollout), recorded.update(rollout)
        assert {name: float(value) for name, value in found.items()} == {k: float(v) for k, v in expected.items()}
    assert all(torch.equal(a, b) for a, b in zip(weights(plain), weights(recorded), strict=True))
    assert float(plain.optimizer.learning_rate) == float(recorded.optimizer.learning_rate)
    parts = 1 if ranks is None else 2  # Between two graphs the processes average.
    assert (recorder.runs, recorder.recorded, recorder.replays) == (WARM_UP, parts, parts * (4 * 6 - WARM_UP))


def test_replays_read_the_same_memory_in_every_update():
    recorder = Replaying()
    algorithm = make(recorder)
    places = []
    for rollout in make_rollouts(3):
        algorithm.update(rollout)
        (recording,) = algorithm.graphed._recordings.values()
        tensors = [recording.index, recording.frozen, *recording.batch._tensors().values()]
        own = [algorithm.optimizer.params, algorithm.optimizer.grads, *algorithm.optimizer._moments.values()]
        places.append([tensor.data_ptr() for tensor in (*tensors, *own, algorithm.optimizer.learning_rate)])
    assert places[0] == places[1] == places[2]


def test_loading_a_state_keeps_the_memory():
    algorithm, other = make(), make()
    (rollout,) = make_rollouts(1)
    other.update(rollout)
    before = [tensor.data_ptr() for tensor in algorithm.optimizer._moments.values()]
    algorithm.optimizer.load_state_dict({k: v.clone() for k, v in other.optimizer.state_dict().items()})
    assert [tensor.data_ptr() for tensor in algorithm.optimizer._moments.values()] == before
    state = algorithm.optimizer._adam.state[algorithm.optimizer.params]
    assert float(state["step"]) == 6.0
    assert torch.equal(state["exp_avg"], other.optimizer.state_dict()["exp_avg"])


def test_each_shape_is_recorded_by_itself(monkeypatch):
    monkeypatch.setattr(graphed, "MAX_KEPT", 2)
    plain, recorder = make(), Replaying()
    recorded = make(recorder)
    for worlds in (10, 20, 10, 30, 10):
        (rollout,) = make_rollouts(1, worlds=worlds, seed=worlds)
        plain.update(rollout)
        recorded.update(rollout)
        assert len(recorded.graphed._recordings) <= 2
    assert recorder.recorded == 4  # 10 was the oldest when 30 came, and is recorded again.
    assert all(torch.equal(a, b) for a, b in zip(weights(plain), weights(recorded), strict=True))


def test_weights_that_come_and_go_are_another_shape():
    recorder = Replaying()
    plain, recorded = make(), make(recorder)
    for number, rollout in enumerate(make_rollouts(4)):
        rollout.has_invalid = number % 2 == 1
        rollout.valid[:, 3] = False
        plain.update(rollout)
        recorded.update(rollout)
    assert recorder.recorded == 2
    assert all(torch.equal(a, b) for a, b in zip(weights(plain), weights(recorded), strict=True))


def test_what_cannot_be_recorded_runs_as_it_is_with_a_notice():
    plain, recorded = make(), make(Replaying(fails=True))
    first, second = make_rollouts(2)
    with pytest.warns(UserWarning, match="without a CUDA graph, which failed: operation not permitted when stream"):
        recorded.update(first)
    recorded.update(second)
    plain.update(first)
    plain.update(second)
    assert all(torch.equal(a, b) for a, b in zip(weights(plain), weights(recorded), strict=True))


class Silent(Auxiliary):
    name = "silent"


class Loud(Auxiliary):
    name = "loud"

    def loss(self, batch, params):
        return batch.value.mean()


class Sure(Loud):
    capturable = True


def test_what_is_recorded():
    cuda, algorithm = torch.device("cuda"), make()
    assert algorithm.graphed is None  # On a CPU.
    assert why_not_graphed(algorithm, torch.device("cpu")) == "graphs are CUDA's"
    assert why_not_graphed(algorithm, cuda) == ""
    for extra, reason in ((Silent(), ""), (Loud(), "loud adds to the loss"), (Sure(), "")):
        algorithm.auxiliaries = Auxiliaries((extra,))
        assert why_not_graphed(algorithm, cuda) == reason
    algorithm.cfg = replace(algorithm.cfg, cuda_graph=False)
    assert why_not_graphed(algorithm, cuda) == "ppo.cuda_graph=false"
