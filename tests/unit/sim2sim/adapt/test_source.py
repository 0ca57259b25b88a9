"""A robot as a simulator of the learner, with a robot that is played from memory."""

import json
import threading
import time

import numpy as np
import pytest
import torch

from robot_rl.errors import UserError
from robot_rl.learn.networks.actor_critic import Actor
from robot_rl.learn.rollouts.source import StoppedError
from robot_rl.learn.simulators.weights import pack
from robot_rl.settings import NetworkCfg
from robot_rl.sim2sim.adapt.source import RobotSource
from robot_rl.sim2sim.adapt.steps import Joiner
from tests.unit.sim2sim.adapt.test_steps import acted, row, sent

STD = 0.2


class PlayedRobot:
    """Rows and events of steps 10, 20, ...; from `swap` on the bundle "one" acts."""

    def __init__(self, count, swap=None, problem=""):
        self.report, self.problem, self._allowed = {"binary": {}}, problem, threading.Semaphore(0)
        self._rows = [row(10 * (k + 1)) for k in range(count)]
        self.events = []
        for k in range(count):
            if k == swap:
                self.events.append({"topic": "/event", "bundle": "one", "text": "swap"})
            self.events += [acted(10 * (k + 1)), sent(10 * (k + 1))]

    def play(self, count):
        """Let it take so many steps."""
        self._allowed.release(count)

    def rows(self):
        for one in self._rows:
            self._allowed.acquire()
            yield one
        self._allowed.acquire()
        if self.problem:
            raise UserError(self.problem)

    def read(self):
        events, self.events = self.events, []
        return events

    def close(self):
        pass


@pytest.fixture
def actor():
    cfg = NetworkCfg(hidden=(8,), init_std=STD, min_std=STD, max_std=STD)
    return Actor(3, 2, cfg, generator=torch.Generator().manual_seed(1))


@pytest.fixture
def make_pool(actor, tmp_path):
    """make_pool(robot): its source, and the versions that were exported."""

    def make(robot, said=None, **options):
        exported = []

        def export(policy, version, out):
            exported.append((version, out, pack(policy)))
            return "one"

        joiner = Joiner(
            read_action=lambda q, dq, tau, command: q, version_of={"zero": 0}, identity="zero", read_log=robot.read
        )
        how = {"num_steps": 4, "window": 2, "say": (said if said is not None else []).append} | options
        source = RobotSource(robot, joiner, actor=actor, export=export, follow=tmp_path, **how)
        source.publish(0, pack(actor))
        return source, exported

    return make


def test_a_rollout_is_the_newest_segments(make_pool):
    """Each is learned from as often as a rollout has segments; its row of metrics counts once."""
    robot = PlayedRobot(12)
    source, _ = make_pool(robot)
    robot.play(8)
    first, second = source.take()
    assert [one.tensors["actor_obs"][0, 0, 0].item() for one in (first, second)] == [10.0, 50.0]
    assert second.metrics["robot/reward"] == 0.25
    robot.play(4)
    again, third = source.take()
    assert again is second
    assert again.metrics == {}
    assert third.tensors["actor_obs"][0, 0, 0].item() == 90.0
    assert source.steps == 12


def test_log_probabilities_are_those_of_the_policy_that_acted(make_pool, actor):
    """A Gaussian with deviation STD around the mean of version 0 before the swap, of version 1 after it."""
    robot = PlayedRobot(4, swap=2)
    source, exported = make_pool(robot, window=1)
    before = [parameter.clone() for parameter in actor.parameters()]
    with torch.no_grad():
        actor.body.layers[-1].bias.add_(0.3)
    source.publish(1, pack(actor))
    robot.play(4)
    (segment,) = source.take()
    assert segment.tensors["version"][:, 0].tolist() == [0, 0, 1, 1]
    assert [version for version, _, _ in exported] == [1]
    obs = segment.tensors["actor_obs"][:, 0]
    new = actor.mean(obs)
    with torch.no_grad():
        for parameter, value in zip(actor.parameters(), before, strict=True):
            parameter.copy_(value)
    mean = torch.cat((actor.mean(obs)[:2], new[2:])).detach()
    assert torch.allclose(segment.tensors["out"][:, 0], mean)
    scaled = (segment.tensors["action"][:, 0] - mean) / STD
    expected = -0.5 * scaled.square().sum(1) - 2 * np.log(STD * np.sqrt(2 * np.pi))
    assert torch.allclose(segment.tensors["log_prob"][:, 0], expected, atol=1e-5)


def test_a_new_bundle_is_announced_by_one_line(make_pool, actor, tmp_path):
    source, exported = make_pool(PlayedRobot(4))
    assert not (tmp_path / "next").exists()
    source.publish(3, pack(actor))
    assert (tmp_path / "next").read_text() == f"{exported[0][1]}\n"
    assert torch.equal(exported[0][2], pack(actor))


def test_a_refused_bundle_is_reported_once(make_pool, actor, tmp_path):
    said = []
    source, _ = make_pool(PlayedRobot(4), said)
    (tmp_path / "refused").write_text("/x/000001: the golden sequence differs\n")
    for version in (2, 3):
        source.publish(version, pack(actor))
    assert len(said) == 1
    assert said[0].endswith("/x/000001: the golden sequence differs")


def test_a_robot_that_ends_too_early_is_an_error(make_pool):
    robot = PlayedRobot(2, problem="robot-rl-infer ended with 4: state_age")
    source, _ = make_pool(robot)
    robot.play(3)
    with pytest.raises(UserError, match="robot-rl-infer ended with 4: state_age"):
        source.take()


def test_a_learner_that_is_slower_than_the_robot_takes_what_is_newest(make_pool):
    robot = PlayedRobot(40)
    source, _ = make_pool(robot)
    robot.play(38)
    while source._rows.qsize() < 38:
        time.sleep(0.001)
    first, second = source.take()
    assert [one.tensors["actor_obs"][0, 0, 0].item() for one in (first, second)] == [290.0, 330.0]
    assert source.steps == 38


def test_a_stop_is_noticed_while_nothing_arrives(make_pool):
    source, _ = make_pool(PlayedRobot(4))
    source.is_stopping = lambda: True
    with pytest.raises(StoppedError):
        source.take()


def test_rows_are_plain_json():
    assert json.loads(json.dumps(row(10)))["critic"] == [10.0] * 4
