"""Curiosity, a motion prior and a reference policy with simulators and with overlap: the learner computes them."""

from dataclasses import replace

import pytest
import torch

from robot_rl.errors import UserError
from robot_rl.learn.auxiliaries.auxiliary import Auxiliary, RolloutHook
from robot_rl.learn.auxiliaries.config import AmpCfg, ReferenceCfg, RndCfg
from robot_rl.learn.auxiliaries.frozen import FrozenService
from robot_rl.learn.auxiliaries.motions import write_motion
from robot_rl.learn.make_trainer import make_trainer
from robot_rl.learn.trainer import Trainer
from robot_rl.settings import MemoryCfg
from tests.covering import chosen

from .apart import apart, assert_local_run, assert_resumed
from .test_overlap import stateful


class Pushing(Auxiliary):
    """An objective that acts in rollouts, with what it learns."""

    name = "pushing"

    def __init__(self, context):
        super().__init__()
        self.hook = RolloutHook()
        self.hook.recorded = {}


@pytest.fixture
def cfg(small_cfg):
    return replace(small_cfg, symmetry="none", keep_checkpoints=0)


@pytest.fixture(params=chosen(["rnd", "amp", "reference", "remembering"], "amp", "remembering"))
def with_objective(request, cfg, make_point_env, tmp_path):
    if request.param == "rnd":
        return replace(cfg, rnd=RndCfg(weight=0.1, hidden=(8,), features=4))
    if request.param == "amp":
        starts = torch.zeros(40, dtype=torch.bool)
        motion = write_motion(tmp_path / "motion.safetensors", torch.rand(40, 1), starts, ["position"], 0.1)
        prior = AmpCfg(weight=0.5, group="actor", motions=str(motion), hidden=(8,), batch=64, replay=2048)
        return replace(cfg, amp=prior)
    before = cfg
    if request.param == "remembering":
        before = replace(cfg, actor=replace(cfg.actor, memory=MemoryCfg(kind="gru", hidden=8, sequence=4)))
    Trainer(make_point_env(), before, run_dir=tmp_path / "before").train(1)
    return replace(cfg, reference=ReferenceCfg(run=str(tmp_path / "before"), weight=0.5, decay=0.9))


def test_one_simulator_without_staleness_is_the_local_run(make_point_env, with_objective, tmp_path):
    rows = assert_local_run(make_point_env, with_objective, tmp_path, 4)
    assert any(name.startswith(("rnd/", "amp/", "reference/")) for name in rows[-1])


def test_a_resumed_run_is_the_run(make_point_env, with_objective, tmp_path):
    assert_resumed(make_point_env, with_objective, tmp_path, 4)


def test_stale_rollouts_of_two_simulators_are_learned_from(make_point_env, with_objective):
    rows = []
    with apart(make_point_env, with_objective, count=2, staleness=2, sleeps=(0.0, 0.004), observer=rows.append) as it:
        it.train(8)
    assert rows[-1]["staleness/max"] > 0.0


class Elsewhere(FrozenService):
    """A service that evaluates a rollout when it is waited for."""

    def __init__(self, frozen):
        self.frozen, self.calls = frozen, []

    def begin(self, obs):
        self.calls.append("begin")
        self.obs = obs.clone()

    def take(self):
        self.calls.append("take")
        return self.frozen.labels(self.obs, None, torch.zeros(len(self.obs) + 1, self.obs.shape[1], dtype=torch.bool))


def test_a_reference_that_a_service_evaluates_gives_the_same_bits(make_point_env, cfg, tmp_path):
    Trainer(make_point_env(), cfg, run_dir=tmp_path / "before").train(1)
    cfg, found = replace(cfg, reference=ReferenceCfg(run=str(tmp_path / "before"), weight=0.5)), []
    for is_apart in (False, True):
        runner = Trainer(stateful(make_point_env), cfg)
        (reference,) = runner.algorithm.auxiliaries
        if is_apart:
            reference.serve(Elsewhere(reference.frozen))
        runner.train(3)
        found.append(runner.actor.state_dict())
    assert all(torch.equal(tensor, found[1][name]) for name, tensor in found[0].items())
    assert reference.service.calls == ["begin", "take"] * 3


def test_a_policy_that_remembers_is_served_by_nobody(make_point_env, cfg, tmp_path):
    before = replace(cfg, actor=replace(cfg.actor, memory=MemoryCfg(kind="gru", hidden=8, sequence=4)))
    Trainer(make_point_env(), before, run_dir=tmp_path / "before").train(1)
    cfg = replace(cfg, reference=ReferenceCfg(run=str(tmp_path / "before"), weight=0.5))
    (reference,) = Trainer(make_point_env(), cfg).algorithm.auxiliaries
    with pytest.raises(UserError, match=r"roles\.reference=apart: its policy remembers each world"):
        reference.serve(Elsewhere(reference.frozen))


def test_an_objective_that_acts_with_what_it_learns_is_refused(make_point_env, cfg):
    cfg = replace(cfg, auxiliaries=(f"{__name__}:Pushing",))
    with (
        pytest.raises(UserError, match="an auxiliary objective acts in rollouts, which simulators cannot do"),
        apart(make_point_env, cfg),
    ):
        pass
    with pytest.raises(UserError, match="an auxiliary objective of learner=ppo acts in rollouts with what it learns"):
        make_trainer(stateful(make_point_env), replace(cfg, overlap=True))
