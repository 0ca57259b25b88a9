"""The pool of Ray's simulators, without Ray: those that join late, that are another than requested, that are lost."""

import sys
import types

import pytest
import torch
from ray import exceptions

from robot_rl.cluster.ray_runs import simulators
from robot_rl.cluster.ray_runs.simulators import RayPool, SimulatorsCfg, SimulatorSpec
from robot_rl.errors import Interrupted, UserError
from robot_rl.learn.ranks import ProcessGroup
from robot_rl.learn.rollouts.source import StoppedError
from robot_rl.learn.simulators.pool import LostError

ORDER = SimulatorSpec(run="runs/x", index=0, count=1, cpus=1, task="cartpole", engine="mujoco")
FACTS = {"task": "cartpole", "engine": "mujoco", "torch": "2.0"}
SEGMENT = {"frozen": None, "has_final_obs": False, "has_invalid": False, "metrics": {}, "tensors": {}}


class Ref:
    """What a call of an actor returns: a value, an error, or nothing yet."""

    def __init__(self):
        self.is_ready, self.value = False, None

    def set(self, value):
        self.is_ready, self.value = True, value


class Actor:
    """An actor that answers what a test says; `log` has the names of its calls."""

    def __init__(self, order):
        self.order, self.log, self.refs = order, [], {}

    def __getattr__(self, name):
        def remote(*arguments, **_):
            self.log.append(name)
            ref = self.refs[name] = Ref()
            if name in ("load", "abandon", "allow", "publish"):
                ref.set(None)
            if name == "state":
                ref.set({"pos": torch.full((2,), float(self.order["index"])).numpy()})
            return ref

        return types.SimpleNamespace(remote=remote)


class Unbuilt(exceptions.RayActorError):
    """What Ray raises for an actor that cannot be made."""

    actor_init_failed = True


@pytest.fixture
def actors(monkeypatch):
    """The actors that were made, in order; the module ray is replaced by one of their kind."""
    made, killed = [], []

    def make(fields):
        made.append(Actor(fields))
        return made[-1]

    def get(ref, timeout=None):
        if isinstance(ref.value, Exception):
            raise ref.value
        return ref.value

    def wait(refs, num_returns=1, timeout=0):
        assert refs, "nothing is waited for"
        ready = [ref for ref in refs if ref.is_ready][:num_returns]
        return ready, [ref for ref in refs if ref not in ready]

    def get_actor(name, namespace):
        raise ValueError(name)

    def options(**_):
        return types.SimpleNamespace(remote=make)

    fake = types.SimpleNamespace(get=get, wait=wait, kill=killed.append, put=lambda x: x, get_actor=get_actor)
    fake.remote, fake.exceptions = lambda _: types.SimpleNamespace(options=options), exceptions
    monkeypatch.setitem(sys.modules, "ray", fake)
    monkeypatch.setattr(simulators, "_versions", lambda: {"torch": "2.0"})
    return types.SimpleNamespace(made=made, killed=killed)


def make_pool(actors, count=3, stop=bool, ranks=None, **cfg):
    pool = RayPool(SimulatorsCfg(count=count, **cfg), ORDER, stop, *([ranks] if ranks else []))
    pool._end.set()  # No signs of life.
    return pool


def be_built(actor, **changed):
    actor.refs["facts"].set({**FACTS, **changed})


def send(pool, actor):
    actor.refs["segment"].set({**SEGMENT, "index": actor.order["index"], "state": {"pos": torch.ones(2).numpy()}})
    return pool.receive()


def test_a_training_begins_with_the_least_number_and_the_others_join(actors):
    pool = make_pool(actors, least=2)
    for actor in actors.made[:2]:
        be_built(actor)
    pool.wait()
    assert pool.present == [0, 1]
    pool.publish(0, torch.zeros(3, dtype=torch.uint8))
    pool.begin(0, 0, is_first=True)
    late = actors.made[2]
    assert [actor.log.count("segment") for actor in actors.made] == [1, 1, 0]
    assert "publish" not in late.log  # It would keep the weights in the store until it is there.
    be_built(late)
    assert pool.receive() == (2, None)
    assert late.log == ["facts", "publish", "state"]
    assert pool.present == [0, 1, 2]
    assert pool.states[2]["pos"].tolist() == [2.0, 2.0]


def test_a_lost_one_joins_again_with_its_newest_state_and_the_others_do_its_segment(actors):
    pool = make_pool(actors, count=2)
    for actor in actors.made:
        be_built(actor)
    pool.wait()
    pool.publish(0, torch.zeros(3, dtype=torch.uint8))
    pool.begin(0, 0, is_first=True)
    one, other = actors.made
    one.refs["segment"].set(exceptions.RayActorError())
    other.refs["segment"].set({**SEGMENT, "index": 1, "state": {"pos": torch.ones(2).numpy()}})
    pool._advance()
    pool._advance()
    pool._fill()
    assert (pool.missing, other.log.count("segment")) == ({0}, 2)
    again = actors.made[2]
    be_built(again)
    pool._advance()
    assert again.log == ["facts", "publish", "load"]
    pool._fill()  # Both segments of the rollout are begun or there.
    assert again.log.count("segment") == 0


@pytest.mark.parametrize(("least", "is_ended"), [(2, False), (3, True)])
def test_one_with_other_versions_that_joins_late_is_left_out_while_enough_are_there(actors, capsys, least, is_ended):
    pool = make_pool(actors, least=least)
    for actor in actors.made[: least - is_ended]:
        be_built(actor)
    if not is_ended:
        pool.wait()
    line = "roles.sim: torch is 1.0 in simulator 2, must be 2.0 as in the learner"
    be_built(actors.made[2], torch="1.0")
    if is_ended:
        with pytest.raises(UserError, match=line):
            pool.wait()
        return
    pool.receive()
    assert f"simulator 2: {line}; 2 of 3 continue without it" in capsys.readouterr().err
    assert actors.killed == [actors.made[2]]


def test_one_that_cannot_be_built_is_a_line(actors):
    pool = make_pool(actors, count=1)
    actors.made[0].refs["facts"].set(Unbuilt())
    with pytest.raises(UserError, match="roles.sim: a simulator cannot be built"):
        pool.wait()


class Second(ProcessGroup):
    rank, size = 1, 2


def test_of_several_learners_each_has_its_own_and_none_stops_before_the_iteration_ends(actors, monkeypatch):
    monkeypatch.setattr(simulators, "PATIENCE_S", 0.0)
    looks = []
    pool = make_pool(actors, 4, lambda: looks.append(0) or True, Second(), engines=("mujoco", "mujoco_warp"))
    assert [actor.order["index"] for actor in actors.made] == [2, 3]
    assert (pool.engines, pool.least) == (["mujoco", "mujoco_warp"], 2)
    with pytest.raises(Interrupted):  # None is there yet.
        pool.wait()
    be_built(actors.made[0])
    be_built(actors.made[1], engine="mujoco_warp")
    pool._admit(actors.made[0].refs["facts"])
    pool._look()
    monkeypatch.setattr(pool, "_ranks", ProcessGroup())
    with pytest.raises(StoppedError):
        pool._look()


def test_a_segment_has_the_index_of_its_simulator_in_the_pool(actors):
    pool = make_pool(actors, 4, ranks=Second())
    for actor in actors.made:
        be_built(actor)
    pool.wait()
    pool.publish(0, torch.zeros(3, dtype=torch.uint8))
    pool.begin(0, 0, is_first=False)
    index, segment = send(pool, actors.made[1])
    assert (index, segment.index) == (1, 1)
    actors.made[0].refs["segment"].set(exceptions.RayActorError())
    with pytest.raises(LostError):
        pool.receive()
