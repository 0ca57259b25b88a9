"""The motion prior: a discriminator of motions, and a policy that learns to move like the recorded one."""

import json
from dataclasses import replace

import pytest
import torch
from rsl_rl.env import VecEnv
from safetensors.torch import save_file
from tensordict import TensorDict
from torch.utils._python_dispatch import TorchDispatchMode

from robot_rl.errors import UserError
from robot_rl.learn.algorithms.ppo.config import PPOCfg, PPOLearnerCfg
from robot_rl.learn.auxiliaries.amp import Amp, Discriminator, style_reward
from robot_rl.learn.auxiliaries.config import AmpCfg, RndCfg
from robot_rl.learn.auxiliaries.motions import Motion, read_motion, write_motion
from robot_rl.learn.auxiliaries.rnd import Rnd
from robot_rl.learn.dims import EnvSpec
from robot_rl.learn.rollout import make_rollout
from robot_rl.learn.trainer import Trainer
from robot_rl.settings import NetworkCfg

STEPS, WORLDS, SIZE = 8, 32, 2


def source(seed=0):
    return torch.Generator().manual_seed(seed)


def motion_of(pairs):
    return Motion(path="motion", pairs=pairs, components=tuple("ab"), step_dt=0.1)


def make_amp(pairs=None, **changes):
    settings = {"weight": 0.5, "motions": "motion", "hidden": (32,), "batch": 128, "replay": 500} | changes
    pairs = torch.randn(200, 2, SIZE, generator=source()) if pairs is None else pairs
    return Amp(AmpCfg(**settings), motion_of(pairs), seed=1)


def rollout_of(poses):
    """A rollout that goes through poses (T + 1, N, D)."""
    steps, worlds = poses.shape[0] - 1, poses.shape[1]
    rollout = make_rollout(steps, worlds, EnvSpec(actor=1, critic=1, action=1), "cpu", groups={"motion": SIZE})
    rollout.groups["motion"].copy_(poses)
    return rollout


def random_poses(mean=0.0, seed=0):
    return mean + torch.randn(STEPS + 1, WORLDS, SIZE, generator=source(seed))


def test_style_reward_by_hand():
    score = torch.tensor([1.0, 0.0, -1.0, -3.0, 2.0, 4.0])
    assert style_reward(score).tolist() == pytest.approx([1.0, 0.75, 0.0, 0.0, 0.75, 0.0])


def test_scores_and_gradients_by_hand():
    """One hidden layer of two units: d = 2 relu(x + y) - relu(x - y) + 0.5."""
    net = Discriminator(2, (2,))
    with torch.no_grad():
        net.layers[0].weight.copy_(torch.tensor([[1.0, 1.0], [1.0, -1.0]]))
        net.layers[1].weight.copy_(torch.tensor([[2.0, -1.0]]))
        net.layers[1].bias.fill_(0.5)
    pairs = torch.tensor([[3.0, 1.0], [1.0, 3.0], [-3.0, 1.0]])
    score, gradient = net.with_gradient(pairs)
    assert score.tolist() == pytest.approx([6.5, 8.5, 0.5])
    assert gradient.tolist() == [[1.0, 3.0], [2.0, 2.0], [0.0, 0.0]]


def test_the_penalty_is_that_of_autograd():
    """Value and derivative by the weights, against two backward passes."""
    net = Discriminator(6, (32, 16), source())
    pairs = torch.randn(64, 6, generator=source(1))
    score, gradient = net.with_gradient(pairs)
    weights = [layer.weight for layer in net.layers]
    ours = torch.autograd.grad(gradient.square().sum(-1).mean(), weights)
    inputs = pairs.clone().requires_grad_()
    expected_score = net(inputs)
    (expected,) = torch.autograd.grad(expected_score.sum(), inputs, create_graph=True)
    theirs = torch.autograd.grad(expected.square().sum(-1).mean(), weights)
    torch.testing.assert_close(score, expected_score)
    torch.testing.assert_close(gradient, expected)
    torch.testing.assert_close(ours, theirs)
    assert float(ours[0].abs().max()) > 0.0


def test_the_loss_by_hand():
    amp = make_amp(gradient_penalty=8.0)
    policy, recorded = torch.randn(4, 2 * SIZE, generator=source(1)), torch.randn(4, 2 * SIZE, generator=source(2))
    weights = torch.tensor([1.0, 0.0, 1.0, 1.0])
    loss, statistics = amp.loss_of(policy, weights, recorded)

    def scores(pairs):
        return amp.discriminator(amp.normalizer(pairs.view(-1, 2, SIZE)).flatten(1))

    expert, mine = scores(recorded), scores(policy)[[0, 2, 3]]
    gradient = amp.discriminator.with_gradient(amp.normalizer(recorded.view(-1, 2, SIZE)).flatten(1))[1]
    expected = (expert - 1).square().mean() + (mine + 1).square().mean() + 4.0 * gradient.square().sum(-1).mean()
    torch.testing.assert_close(loss, expected)
    means = [expected, expert.mean(), mine.mean(), gradient.square().sum(-1).mean()]
    torch.testing.assert_close(statistics, torch.stack(means).detach())


def test_it_distinguishes_two_motions():
    """The recording's second pose goes on as the first one moves; the policy's poses are alike but unrelated."""
    first = torch.randn(2000, SIZE, generator=source())
    amp = make_amp(torch.stack((first, first + 0.1), dim=1), learning_rate=3e-3, gradient_penalty=0.1, steps=10)
    for seed in range(60):
        rollout = rollout_of(random_poses(seed=seed))
        amp.reward(rollout)
        statistics = amp.update(rollout, 0.0)
    assert float(statistics["amp/expert"]) > 0.6
    assert float(statistics["amp/policy"]) < -0.6
    poses = torch.randn(1, WORLDS, SIZE, generator=source(9)) + 0.1 * torch.arange(STEPS + 1)[:, None, None] - 0.4
    alike = float(amp.reward(rollout_of(poses)).mean()) / amp.cfg.weight
    other = float(amp.reward(rollout_of(random_poses(seed=99))).mean()) / amp.cfg.weight
    assert alike > 0.7
    assert other < 0.3
    assert float(statistics["amp/reward"]) == pytest.approx(other, abs=0.15)


def test_shares_and_scale():
    amp, double = make_amp(weight=0.25), make_amp(weight=0.25, scale=2.0)
    assert amp.reward_weight == 0.75
    rollout = rollout_of(random_poses())
    reward = amp.reward(rollout)
    assert reward.shape == (STEPS, WORLDS)
    assert 0.0 < float(reward.max()) <= 0.25
    torch.testing.assert_close(double.reward(rollout), 2.0 * reward)


def counted(before, after):
    """Poses with the index of their episode as first component."""
    poses = torch.zeros(STEPS + 1, WORLDS, SIZE)
    poses[:before], poses[before:] = 1.0, after
    return poses


@pytest.mark.parametrize("is_known", [True, False])
def test_a_pair_never_joins_two_episodes(is_known):
    amp = make_amp(replay=STEPS * WORLDS)
    rollout = rollout_of(counted(4, 7.0))
    rollout.done[3], rollout.has_final_obs = True, is_known  # Step 3 goes from row 3 to the next episode's row 4.
    rollout.ends["motion"].fill_(50.0)
    rollout.ends["motion"][3] = 2.0
    reward = amp.reward(rollout)
    amp.update(rollout, 0.0)
    pairs = {tuple(pair) for pair in amp.replay[amp.weights > 0].tolist()}
    inside = {(1.0,) * 4, (7.0,) * 4}
    assert pairs == inside | ({(1.0, 1.0, 2.0, 2.0)} if is_known else set())
    assert float(amp.weights.sum()) == STEPS * WORLDS - (0 if is_known else WORLDS)
    assert float(amp.replay[amp.weights == 0].abs().sum()) == 0.0
    if not is_known:
        assert float(reward[3].abs().max()) == 0.0


def test_quarantined_samples_never_enter():
    results = []
    for poison in (0.0, torch.nan):
        rollout = rollout_of(random_poses())
        rollout.has_invalid = rollout.has_final_obs = True
        for t, world in ((3, 5), (STEPS - 1, 7)):
            rollout.valid[t, world], rollout.done[t, world] = False, True
            rollout.groups["motion"][t, world] = rollout.ends["motion"][t, world] = poison
        rollout.groups["motion"][STEPS, 7] = poison
        amp = make_amp()
        reward = amp.reward(rollout)
        # The step before leads to a pose that a quarantine took away.
        assert all(float(reward[t, w]) == 0.0 for t, w in ((2, 5), (3, 5), (STEPS - 2, 7), (STEPS - 1, 7)))
        statistics = amp.update(rollout, 0.0)
        assert float(amp.weights.sum()) == STEPS * WORLDS - 4
        assert int(amp.normalizer.count) == 400 + 2 * STEPS * WORLDS - 4
        results.append({"reward": reward, **statistics, **amp.state_dict()})
    assert all(torch.equal(tensor, results[1][name]) for name, tensor in results[0].items())
    assert all(bool(tensor.isfinite().all()) for tensor in results[1].values())


def test_the_replay_buffer_keeps_the_newest():
    amp = make_amp(replay=300)
    size = STEPS * WORLDS
    for k in range(3):
        amp.update(rollout_of(torch.full((STEPS + 1, WORLDS, SIZE), float(k))), 0.0)
    assert (amp._stored, int(amp.stored)) == (3 * size, 3 * size)
    counts = [int((amp.replay[:, 0] == k).sum()) for k in range(3)]
    assert counts == [0, 300 - size, size]
    small = make_amp(replay=100)
    small.update(rollout_of(random_poses()), 0.0)
    assert float(small.weights.sum()) == 100.0
    assert len({tuple(pair) for pair in small.replay.tolist()}) == 100


class SpeedEnv(VecEnv):
    """A mass on a line with the action as its acceleration; its motion is its speed. The task's reward is nothing."""

    def __init__(self, num_envs: int = 64, episode: int = 25, seed: int = 0) -> None:
        self.num_envs, self.num_actions, self.max_episode_length = num_envs, 1, episode
        self.device, self.cfg, self.step_dt = "cpu", {}, 0.1
        self.episode_length_buf = torch.zeros(num_envs, dtype=torch.int64)
        self.generator = source(seed)
        self.speed = torch.zeros(num_envs)

    def components(self, group: str) -> list[str]:
        return ["speed", "half_speed"]

    def get_observations(self) -> TensorDict:
        speed = self.speed[:, None]
        motion = torch.cat((speed, 0.5 * speed), dim=-1)
        return TensorDict({"actor": speed.clone(), "critic": speed.clone(), "motion": motion}, [self.num_envs])

    def step(self, actions: torch.Tensor) -> tuple[TensorDict, torch.Tensor, torch.Tensor, dict]:
        self.speed = self.speed + 0.2 * actions[:, 0].clamp(-1.0, 1.0)
        self.episode_length_buf += 1
        time_outs = self.episode_length_buf >= self.max_episode_length
        extras = {"time_outs": time_outs, "final_obs": self.get_observations()}
        self.speed = torch.where(time_outs, 0.2 * torch.randn(self.num_envs, generator=self.generator), self.speed)
        self.episode_length_buf[time_outs] = 0
        return self.get_observations(), torch.zeros(self.num_envs), time_outs, extras


@pytest.fixture
def recording(tmp_path):
    """A motion at a speed of about 1.5."""
    speed = 1.5 + 0.1 * torch.randn(1000, 1, generator=source())
    frames, starts = torch.cat((speed, 0.5 * speed), dim=-1), torch.zeros(1000, dtype=torch.bool)
    return write_motion(tmp_path / "motion.safetensors", frames, starts, ["speed", "half_speed"], 0.1)


def amp_cfg(cfg, recording, **changes):
    settings = {"weight": 0.5, "motions": str(recording), "hidden": (32, 16), "batch": 128, "replay": 2000, "steps": 4}
    return replace(cfg, amp=AmpCfg(**settings | changes))


def test_a_resumed_run_goes_on_to_the_bit(small_cfg, recording, tmp_path):
    env, cfg = SpeedEnv(), amp_cfg(small_cfg, recording)
    cfg = replace(cfg, rnd=RndCfg(weight=0.1, groups=("actor",), hidden=(8,), features=4))
    whole = Trainer(env, cfg, run_dir=tmp_path / "run")
    whole.train(2)
    other = SpeedEnv()
    other.speed, other.episode_length_buf = env.speed.clone(), env.episode_length_buf.clone()
    other.generator.set_state(env.generator.get_state())
    resumed = Trainer(other, cfg, seed=5)
    resumed.load(whole.checkpoint)
    expected, found = whole.train(6), resumed.train(6)
    for key in ("loss/value", "amp/reward", "amp/loss", "amp/expert", "amp/policy", "amp/penalty", "rnd/reward"):
        assert found[key] == expected[key]
    theirs = whole.networks() | whole.state()
    for name, tensor in (resumed.networks() | resumed.state()).items():
        assert torch.equal(tensor, theirs[name]), name


def test_another_motion_is_refused_on_resuming(small_cfg, recording, tmp_path):
    runner = Trainer(SpeedEnv(), amp_cfg(small_cfg, recording), run_dir=tmp_path / "run")
    runner.train(1)
    write_motion(recording, torch.zeros(10, 2), torch.zeros(10), ["speed", "half_speed"], 0.1)
    other = Trainer(SpeedEnv(), amp_cfg(small_cfg, recording))
    with pytest.raises(UserError, match=r"motion.safetensors holds another motion than the run was trained with"):
        other.load(runner.checkpoint)


def test_a_run_without_a_prior_cannot_go_on_with_one(small_cfg, recording, tmp_path):
    runner = Trainer(SpeedEnv(), small_cfg, run_dir=tmp_path / "run")
    runner.train(1)
    other = Trainer(SpeedEnv(), amp_cfg(small_cfg, recording))
    with pytest.raises(UserError, match=r"has no 'auxiliary.amp.replay' \(2000, 4\), its run was without amp"):
        other.load(runner.checkpoint)
    other.load(runner.checkpoint, weights_only=True)


def test_the_task_keeps_its_share(make_point_env, small_cfg, recording):
    """Curiosity is not part of the task: the prior's share does not come out of it."""
    cfg = replace(amp_cfg(small_cfg, recording), rnd=RndCfg(weight=2.0, groups=("actor",), hidden=(8,), features=4))
    runner = Trainer(SpeedEnv(), cfg)
    runner.collect()
    rollout, values = runner.collector.rollout, torch.zeros(9, 64)
    rollout.done.fill_(True)
    rollout.time_out.fill_(False)
    rollout.reward.fill_(3.0)
    found = runner.algorithm.targets.advantages(rollout, values)[0]
    amp, rnd = Trainer(SpeedEnv(), cfg).algorithm.auxiliaries
    torch.testing.assert_close(found, 0.5 * 3.0 + amp.reward(rollout) + rnd.reward(rollout))


def test_a_file_of_frames_and_one_of_pairs(tmp_path, recording):
    frames = torch.arange(12.0).view(6, 2)
    path = write_motion(tmp_path / "a.safetensors", frames, torch.tensor([1, 0, 0, 1, 0, 1]), ["a", "b"], 0.02)
    motion = read_motion(path)
    assert motion.pairs.tolist() == [[[0, 1], [2, 3]], [[2, 3], [4, 5]], [[6, 7], [8, 9]]]
    assert (motion.components, motion.step_dt) == (("a", "b"), 0.02)
    meta = {"components": json.dumps(["a", "b"]), "step_dt": "0.02"}
    save_file({"pairs": motion.pairs}, tmp_path / "b.safetensors", meta)
    other = read_motion(tmp_path / "b.safetensors")
    assert torch.equal(other.pairs, motion.pairs)
    assert other.digest == motion.digest != read_motion(recording).digest


BAD_FILES = [
    ({"poses": torch.zeros(4, 2)}, {}, r"must have 'pairs' \(P, 2, D\), or 'frames'"),
    ({"frames": torch.zeros(4, 2)}, {}, r"has {'frames': \(4, 2\)}"),
    ({"frames": torch.zeros(4, 2), "episode_starts": torch.ones(4)}, {}, "P at least 1"),
    ({"pairs": torch.zeros(4, 3, 2)}, {}, r"has pairs of shape \(4, 3, 2\)"),
    ({"pairs": torch.full((4, 2, 2), torch.nan)}, {}, "not finite"),
    ({"pairs": torch.zeros(4, 2, 2)}, {}, "lacks 'components'"),
    ({"pairs": torch.zeros(4, 2, 2)}, {"components": '["a"]', "step_dt": "1"}, "names 1 components, its frames have 2"),
]


@pytest.mark.parametrize(("tensors", "meta", "line"), BAD_FILES)
def test_bad_files(tmp_path, tensors, meta, line):
    path = tmp_path / "bad.safetensors"
    save_file(tensors, path, meta)
    with pytest.raises(UserError, match=line):
        read_motion(path)


def test_no_file_and_no_safetensors(tmp_path):
    with pytest.raises(UserError, match="no such file, robot-rl record writes one"):
        read_motion(tmp_path / "nothing")
    (tmp_path / "text").write_text("not a tensor")
    with pytest.raises(UserError, match="damaged, no safetensors file"):
        read_motion(tmp_path / "text")
    with pytest.raises(UserError, match=r"motions: '' is not a file"):
        AmpCfg(weight=0.5)


def test_a_motion_of_something_else_is_refused_with_both(small_cfg, make_point_env, tmp_path):
    def runner(names, step_dt=0.1, **changes):
        size = len(names)
        path = write_motion(tmp_path / "m", torch.zeros(5, size), torch.zeros(5), names, step_dt)
        return Trainer(SpeedEnv(), amp_cfg(small_cfg, path, **changes))

    with pytest.raises(UserError, match=r"component 1 of .* is 'height', of the environment's group .* 'half_speed'"):
        runner(["speed", "height"])
    with pytest.raises(UserError, match=r"has 1 components \(speed\), group 'motion' .* has 2 \(speed, half_speed\)"):
        runner(["speed"])
    with pytest.raises(UserError, match=r"a frame every 0.02 s, the environment steps every 0.1 s"):
        runner(["speed", "half_speed"], step_dt=0.02)
    with pytest.raises(UserError, match=r"amp.group: the environment has no group 'poses'"):
        runner(["speed", "half_speed"], group="poses")


class Reads(TorchDispatchMode):
    """Notes what a GPU would have to be waited for."""

    NAMES = ("aten::_local_scalar_dense", "aten::nonzero", "aten::masked_select", "aten::equal", "aten::is_nonzero")

    def __init__(self):
        super().__init__()
        self.seen = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        if func.name() in self.NAMES:
            self.seen.append(func.name())
        return func(*args, **(kwargs or {}))


def test_nothing_is_read_from_the_device():
    rollout = rollout_of(random_poses())
    rollout.has_invalid = rollout.has_final_obs = True
    rollout.valid[2, 3], rollout.done[2:4, 3] = False, True
    extras = make_amp(), Rnd(RndCfg(weight=1.0, groups=("motion",), hidden=(8,), features=4, decay=0.5), SIZE)
    with Reads() as reads:
        for extra in extras:
            extra.reward(rollout)
            extra.update(rollout, 0.5)
            extra.reward(rollout)
    assert reads.seen == []
    with Reads() as reads:
        float(rollout.reward.sum())
    assert reads.seen == ["aten::_local_scalar_dense"]


@pytest.mark.long
def test_the_policy_learns_the_speed(recording):
    cfg = PPOLearnerCfg(
        num_steps=25,
        actor=NetworkCfg(hidden=(32,), init_std=0.5),
        critic=NetworkCfg(hidden=(32,), output_gain=1.0),
        ppo=PPOCfg(learning_rate=1e-3, schedule="fixed", entropy_coef=0.0),
    )
    env, rows = SpeedEnv(), []
    cfg = amp_cfg(cfg, recording, weight=1.0, steps=10, learning_rate=1e-3, gradient_penalty=1.0, replay=10_000)
    runner = Trainer(env, cfg, seed=1, observer=rows.append)
    runner.train(90)
    env = SpeedEnv()
    with torch.no_grad():
        for _ in range(24):
            env.step(runner.actor.mean(env.get_observations()["actor"]))
    assert float(env.speed.mean()) == pytest.approx(1.5, abs=0.3)  # A little more: every episode begins below.
    assert float(env.speed.std()) < 0.15
    assert rows[-1]["amp/reward"] > 0.5
    assert abs(rows[-1]["amp/expert"] - rows[-1]["amp/policy"]) < 0.6  # They can hardly be distinguished any more.
