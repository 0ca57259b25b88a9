"""A learner with simulators in threads, for any configuration, and what is compared between trainings."""

import contextlib
from dataclasses import replace

from benchmarks.thread_pool import ThreadPool
from robot_rl.learn.checkpoints.checkpoint import latest_checkpoint, load_checkpoint
from robot_rl.learn.make_trainer import make_trainer
from robot_rl.learn.simulators.remote import RemoteWorlds
from robot_rl.learn.simulators.simulator import Simulator
from robot_rl.learn.trainer import Trainer
from robot_rl.settings.learner import StalenessCfg
from tests.unit.learn.test_overlap import stateful
from tests.unit.learn.test_simulators import same, tensors

STREAMS = ("random.noise", "random.hold", "auxiliary.teacher.random")
"""The random streams of what acts; a learner with simulators does not use its own."""


@contextlib.contextmanager
def apart(env_class, cfg, *, count=1, staleness=0, sleeps=(), pool=ThreadPool, **options):
    """A learner with `count` simulators of 64 worlds in all; a sleep [s] is added to each step of some."""
    share, cfg = 64 // count, replace(cfg, staleness=StalenessCfg(max=staleness))

    def simulator(index):
        env = stateful(env_class, sleeps[index] if sleeps else 0.0, num_envs=share, seed=index)
        return Simulator(env, cfg, seed=1, index=index, count=count, staleness=staleness)

    simulators = pool([lambda index=index: simulator(index) for index in range(count)])
    try:
        yield make_trainer(RemoteWorlds(stateful(env_class, num_envs=2), share * count, simulators), cfg, **options)
    finally:
        simulators.close()


def assert_local_run(env_class, cfg, folder, iterations=6):
    """Assert that one simulator without staleness gives the bits of a local run, rows and weights."""
    here, there = [], []
    Trainer(stateful(env_class), cfg, run_dir=folder / "here", observer=here.append).train(iterations)
    with apart(env_class, cfg, run_dir=folder / "there", observer=there.append) as session:
        session.train(iterations)
    mine, theirs = tensors(folder / "there"), tensors(folder / "here")
    for name in STREAMS:
        mine.pop(name, None), theirs.pop(name, None)
    assert same(mine, theirs)
    assert [_untimed(row) for row in here] == [_untimed(row) for row in there]
    return there


def _untimed(row):
    left_out = ("perf", "time_s", "staleness", "simulators")
    return {name: value for name, value in row.items() if name.partition("/")[0] not in left_out}


def assert_resumed(env_class, cfg, folder, iterations=6):
    """Assert that a run with a simulator, and one with overlap, go on after an end as if there had been none."""
    half = {"observer": lambda row: row["iteration"] == iterations // 2}
    with apart(env_class, cfg, run_dir=folder / "whole") as session:
        session.train(iterations)
    with apart(env_class, cfg, run_dir=folder / "parts", **half) as session:
        session.train(iterations)
    with apart(env_class, cfg, run_dir=folder / "parts") as session:
        session.load(latest_checkpoint(session.run_dir))
        session.train(iterations)
    assert same(tensors(folder / "parts"), tensors(folder / "whole"))
    cfg, found = replace(cfg, overlap=True), []
    for name in ("overlapped", "halves", "halves"):
        options = half if len(found) == 1 else {}
        runner = make_trainer(stateful(env_class, 0.001 * len(found)), cfg, run_dir=folder / name, **options)
        if (folder / name).is_dir():
            runner.load(latest_checkpoint(folder / name))
        runner.train(iterations)
        found.append(load_checkpoint(latest_checkpoint(folder / name))[0])
    whole, halves = found[0], found[-1]
    assert all(tensor.equal(halves[name]) for name, tensor in whole.items())
