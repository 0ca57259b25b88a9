"""Networks with encoders: what goes through an encoder, that mirrors still hold, and that nothing else changes."""

import math
from dataclasses import replace

import pytest
import torch
from tensordict import TensorDict

from robot_rl.errors import UserError
from robot_rl.learn.algorithms.ppo.augment import AugmentSymmetry
from robot_rl.learn.algorithms.ppo.config import PPOLearnerCfg
from robot_rl.learn.algorithms.ppo.ppo import PPO
from robot_rl.learn.dims import EnvSpec, make_env_spec
from robot_rl.learn.networks import conv
from robot_rl.learn.networks.actor_critic import Actor, Critic
from robot_rl.learn.networks.conv import Encoders, conv_spans
from robot_rl.learn.networks.layout import ObservationLayout
from robot_rl.learn.networks.normalizer import Normalizer
from robot_rl.learn.networks.symmetry import reflect
from robot_rl.learn.policy import make_policy
from robot_rl.learn.rollout import make_rollout
from robot_rl.learn.trainer import Trainer
from robot_rl.settings import ConvCfg, NetworkCfg
from robot_rl.settings.networks import MemoryCfg

SCAN = ConvCfg(groups=("actor.scan",), channels=(4, 8), features=6)
"""Two numbers, a scan of 8 x 10, one more number."""
LAYOUT = ObservationLayout({"actor": (83,)}, {"actor.first": (0, 2), "actor.scan": (2, 1, 8, 10)})
ROWS = torch.arange(80).view(8, 10).flip(0).reshape(-1)
"""The scan's rows from the other side."""
MIRROR = (
    torch.cat((torch.tensor([1, 0]), 2 + ROWS, torch.tensor([82]))),
    torch.cat((torch.ones(2), torch.ones(80), -torch.ones(1))),
)
MIRROR_OUT = (torch.tensor([1, 0, 2]), torch.tensor([-1.0, -1.0, 1.0]))


def make_cfg(scan=SCAN, **fields):
    return NetworkCfg(**({"hidden": (16, 16), "output_gain": 1.0, "conv": scan} | fields))


def make_actor(cfg=None, mirror=None):
    return Actor(LAYOUT, 3, cfg or make_cfg(), mirror=mirror, generator=torch.Generator().manual_seed(0))


def test_an_encoder_by_hand():
    """Pixels 0 ... 8 in 3 x 3, a kernel of 2 x 2 ones at every second place from the upper left edge on: 0, 1 + 2,
    3 + 6 and 4 + 5 + 7 + 8, weighed by 1, 2, 3, 4 in feature 0; feature 1 is negative before its activation."""
    scan = ConvCfg(groups=("eye",), channels=(1,), kernels=(2,), strides=(2,), features=2)
    encoders = Encoders(
        ObservationLayout({"before": (2,), "eye": (3, 3), "after": (1,)}), make_cfg(scan, activation="relu")
    )
    convolution, linear = encoders.encoders[0].layers[0], encoders.encoders[0].layers[3]
    with torch.no_grad():
        convolution.weight.fill_(1.0)
        linear.weight.copy_(torch.tensor([[1.0, 2.0, 3.0, 4.0], [-1.0] * 4]))
        x = torch.cat((torch.tensor([5.0, 6.0]), torch.arange(9.0), torch.tensor([7.0])))
        assert encoders(x[None]).tolist() == [[5.0, 6.0, 7.0, 129.0, 0.0]]
    assert encoders.out_dim == 5


@pytest.mark.parametrize("shape", [(8, 10), (11, 17), (12, 16), (9, 7), (64, 47), (33, 35)])
def test_every_pixel_is_looked_at(shape):
    layout = ObservationLayout({"eye": shape})
    encoders = Encoders(layout, make_cfg(ConvCfg(groups=("eye",), channels=(3, 3, 3)), activation="tanh"))
    x = torch.zeros(1, layout.size, requires_grad=True)
    encoders(x).sum().backward()
    assert float(x.grad.abs().min()) > 0.0


@pytest.mark.parametrize(("shape", "kernels", "strides"), [((11, 17), (3, 3), (2, 2)), ((64, 48), (7, 3), (4, 2))])
def test_kernels_that_are_not_given_fit_the_image(shape, kernels, strides):
    encoders = Encoders(ObservationLayout({"eye": shape}), make_cfg(ConvCfg(groups=("eye",))))
    found = [layer for layer in encoders.encoders[0].layers if isinstance(layer, torch.nn.Conv2d)]
    assert [layer.kernel_size for layer in found] == [(size, size) for size in kernels]
    assert [layer.stride for layer in found] == [(size, size) for size in strides]


def test_a_term_inside_a_group_is_seen_as_an_image():
    actor, x = make_actor(), torch.randn(7, 83)
    with torch.no_grad():
        features = actor.encoders.encoders[0](x[:, 2:82].reshape(7, 1, 8, 10))
        torch.testing.assert_close(actor.outputs(x), actor.body(torch.cat((x[:, :2], x[:, 82:], features), 1)))


def test_a_long_batch_is_cut_without_changing_it(monkeypatch):
    actor, x = make_actor(), torch.randn(50, 83)
    with torch.no_grad():
        whole = actor.outputs(x)
        monkeypatch.setattr(conv, "CHUNK_ELEMENTS", 10 * actor.encoders.encoders[0].widest)
        sizes = []
        actor.encoders.encoders[0].register_forward_hook(lambda _, args, out: sizes.append(len(out)))
        torch.testing.assert_close(actor.outputs(x), whole)
    assert sizes == [10] * 5


def test_seeded_weights_leave_the_global_stream_unchanged():
    before = torch.get_rng_state()
    first, second = make_actor(), make_actor()
    assert torch.equal(torch.get_rng_state(), before)
    assert all(torch.equal(a, b) for a, b in zip(first.parameters(), second.parameters(), strict=True))
    assert all(bool(p.isfinite().all()) for p in first.parameters())


def test_without_encoders_nothing_changes():
    cfg = make_cfg(ConvCfg())
    actor, x = make_actor(cfg), torch.randn(5, 83)
    assert actor.encoders.is_identity
    assert not list(actor.encoders.parameters())
    with torch.no_grad():
        assert torch.equal(actor.outputs(x), actor.body(x))


def test_two_groups_have_an_encoder_each_of_their_own_shape():
    scan = ConvCfg(groups=("depth", "scan"), shape=(6, 8), channels=(3,), features=5)
    layout = ObservationLayout({"scan": (48,), "actor": (4,), "depth": (2, 12, 9)})
    encoders = Encoders(layout, make_cfg(scan))
    assert [encoder.layers[0].in_channels for encoder in encoders.encoders] == [1, 2]
    assert encoders(torch.randn(3, layout.size)).shape == (3, 4 + 5 + 5)


@pytest.mark.parametrize("activation", ["elu", "silu"])
def test_a_mirrored_network_with_an_encoder_is_equivariant(activation):
    actor = make_actor(make_cfg(activation=activation), (MIRROR, MIRROR_OUT))
    critic = Critic(LAYOUT, make_cfg(activation=activation), mirror=MIRROR)
    for network in (actor, critic):
        network.normalizer.update(torch.randn(64, 83) * 3.0 + 1.0)
    obs = torch.randn(9, 83)
    with torch.no_grad():
        torch.testing.assert_close(actor.mean(reflect(obs, MIRROR)), reflect(actor.mean(obs), MIRROR_OUT))
        torch.testing.assert_close(critic.value(reflect(obs, MIRROR)), critic.value(obs))
        other = obs.clone()
        other[:, 81] += 1.0  # It does look at the scan.
        assert float((actor.mean(other) - actor.mean(obs)).abs().max()) > 1e-3


def test_gradients_reach_the_encoder_through_the_mirrored_body():
    actor, obs = make_actor(mirror=(MIRROR, MIRROR_OUT)), torch.randn(33, 83)
    x = actor.encode(obs)
    found = []
    for run in (actor.body.forward, actor.body.plain):
        actor.zero_grad()
        run(actor.body.encode(actor.encoders(x))).square().sum().backward()
        found.append([p.grad.clone() for p in actor.parameters() if p.grad is not None and p.numel()])
    for fused, plain in zip(*found, strict=True):
        torch.testing.assert_close(fused, plain, rtol=1e-4, atol=1e-5)
    assert float(actor.encoders.encoders[0].layers[0].weight.grad.abs().max()) > 0.0


def test_a_mirror_that_leaves_the_image_is_refused():
    perm = torch.arange(83)
    perm[0], perm[5] = 5, 0
    with pytest.raises(UserError, match=r"the mirror takes parts of 'actor\.scan' to elsewhere"):
        Encoders(LAYOUT, make_cfg(), mirror=(perm, torch.ones(83)))


def test_a_channels_pixels_share_mean_and_deviation():
    generator = torch.Generator().manual_seed(0)
    obs = torch.randn(40, 1 + 2 * 12, generator=generator) * torch.rand(25, generator=generator)
    obs[:, 4] = 3.0  # A pixel that never changed.
    normalizer = Normalizer(25, pools=((1, 25, 2),))
    normalizer.update(obs[:15])
    normalizer.update(obs[15:])
    for start in (1, 13):
        channel = obs[:, start : start + 12]
        torch.testing.assert_close(normalizer.mean[start : start + 12], channel.mean().expand(12))
        torch.testing.assert_close(normalizer.var[start : start + 12], channel.var(correction=0).expand(12))
    torch.testing.assert_close(normalizer.mean[0], obs[:, 0].mean())
    torch.testing.assert_close(normalizer.var[0], obs[:, 0].var(correction=0))


BAD = [
    ({"groups": ("actor.scna",)}, r"conv\.groups: 'actor\.scna' .* did you mean 'actor\.scan'\?"),
    ({"groups": ("actor", "actor.scan"), "shape": (1, 83)}, r"'actor\.scan' and 'actor' share components"),
    ({"groups": ("actor",)}, r"conv\.shape: 'actor' is a vector of 83 components; .* conv\.shape=\[height, width\]"),
    ({"groups": ("actor",), "shape": (8, 10)}, r"conv\.shape: \[8, 10\] has 80 components, 'actor' 83"),
    ({"groups": ("actor.scan",), "shape": (4, 20)}, r"conv\.shape: \[4, 20\] fits none of actor\.scan"),
    ({"kernels": (1, 2, 3)}, r"kernels=\[1, 2, 3\]: must be one value, or 2"),
    ({"kernels": (11,)}, r"conv\.kernels: 11 is larger than the input of convolution 1 of 'actor\.scan', 8 x 10"),
    ({"kernels": (3, 7)}, r"conv\.kernels: 7 is larger than the input of convolution 2 of 'actor\.scan', 4 x 5"),
]


@pytest.mark.parametrize(("fields", "line"), BAD)
def test_bad_input_is_named(fields, line):
    with pytest.raises(UserError, match=line) as caught:
        conv_spans(LAYOUT, replace(SCAN, **fields))
    assert "\n" not in str(caught.value)


def test_a_shape_equal_to_the_groups_own_may_be_given():
    assert conv_spans(LAYOUT, replace(SCAN, shape=(8, 10)))[0].shape == (1, 8, 10)


# -- In training -------------------------------------------------------------------------------------------------------


def make_seeing(point_env):
    """The point task, in which the position is to be seen on a strip of 4 x 12 pixels."""

    class SeeingEnv(point_env):
        @property
        def observation_terms(self):
            return {"both.place": (0, 1), "both.strip": (1, 1, 4, 12)}

        def get_observations(self):
            groups = super().get_observations()
            pixels = torch.linspace(-2.5, 2.5, 12)
            strip = torch.exp(-4.0 * (groups["actor"] - pixels).square())
            groups["eye"] = strip[:, None, None, :].repeat(1, 1, 4, 1)
            groups["both"] = torch.cat((torch.zeros(self.num_envs, 1), groups["eye"].flatten(1)), dim=1)
            return TensorDict(dict(groups), batch_size=[self.num_envs])

    return SeeingEnv


@pytest.fixture
def seeing(make_point_env):
    return make_seeing(make_point_env)


def seeing_cfg(cfg, group, name):
    scan = ConvCfg(groups=(name,), channels=(4,), features=8)
    return replace(cfg, actor_groups=(group,), actor=replace(cfg.actor, conv=scan))


@pytest.mark.long
@pytest.mark.parametrize(("group", "name"), [("eye", "eye"), ("both", "both.strip")])
def test_it_learns_from_what_it_sees(seeing, small_cfg, group, name):
    rows = []
    last = Trainer(seeing(), seeing_cfg(small_cfg, group, name), observer=rows.append).train(25)
    assert rows[0]["episode/return"] < -5.0
    assert last["episode/return"] > -1.5


def test_same_seed_same_bits_and_a_policy_from_its_checkpoint(seeing, small_cfg, tmp_path):
    torch.set_num_threads(2)
    weights = []
    for k in range(2):
        env = seeing(num_envs=16)
        runner = Trainer(env, seeing_cfg(small_cfg, "both", "both.strip"), run_dir=tmp_path / str(k), seed=3)
        runner.train(2)
        weights.append([p.detach() for p in runner.actor.parameters()])
    assert all(torch.equal(a, b) for a, b in zip(*weights, strict=True))
    policy = make_policy(tmp_path / "0")
    obs = seeing(num_envs=5).get_observations()
    with torch.no_grad():
        assert torch.equal(policy(obs), runner.actor.mean(obs["both"]))


def test_the_first_minibatch_has_ratio_one():
    cfg = make_cfg()
    actor, critic = make_actor(cfg), Critic(4, NetworkCfg(hidden=(8,)))
    ppo = PPO(actor, critic, PPOLearnerCfg().ppo, generator=torch.Generator().manual_seed(0))
    rollout = make_rollout(6, 16, EnvSpec(actor=83, critic=4, action=3), "cpu")
    rollout.actor_obs.normal_()
    rollout.noise.normal_()
    with torch.no_grad():
        for t in range(6):
            rollout.action[t], rollout.out[t] = actor.act(rollout.actor_obs[t], rollout.noise[t])
    rollout.record_policy(actor.distribution, actor.distribution.snapshot())
    batch = ppo.make_batch(rollout)
    log_prob = actor.distribution.log_prob(batch.action, actor.distribution.params(actor.outputs(batch.actor_in)))
    torch.testing.assert_close((log_prob - batch.log_prob).exp(), torch.ones(96), rtol=0.0, atol=1e-5)


def test_mirrored_samples_pass_the_encoder_mirrored():
    """What augmentation adds is what the policy would have seen and done on the other side."""
    actor, critic = make_actor(), Critic(4, NetworkCfg(hidden=(8,)))
    rollout = make_rollout(2, 8, EnvSpec(actor=83, critic=4, action=3), "cpu")
    rollout.actor_obs.normal_()
    rollout.action.normal_()
    symmetry = AugmentSymmetry(MIRROR, (torch.arange(4), torch.ones(4)), MIRROR_OUT)
    with torch.no_grad():
        rollout.out.copy_(actor.outputs(actor.encode(rollout.actor_obs.flatten(0, 1))).view(2, 8, 3))
        batch = PPO(actor, critic, PPOLearnerCfg().ppo, symmetry=symmetry).make_batch(rollout)
        image = rollout.actor_obs.flatten(0, 1).clone()
        image[:, 2:82] = image[:, 2:82].view(16, 8, 10).flip(1).reshape(16, 80)
        image[:, :2], image[:, 82] = image[:, [1, 0]], -image[:, 82]
        torch.testing.assert_close(batch.out[16:], actor.mean(image))


def test_mirrors_of_several_groups_are_joined(seeing, small_cfg):
    env = seeing()
    flip = torch.arange(48).view(4, 12).flip(1).reshape(-1)
    env.mirror = env.mirror | {"eye": (flip, torch.ones(48))}
    scan = ConvCfg(groups=("eye",), channels=(4,), features=8)
    actor = replace(small_cfg.actor, conv=scan, output_gain=1.0)
    cfg = replace(small_cfg, actor_groups=("actor", "eye"), symmetry="network", actor=actor)
    runner = Trainer(env, cfg)
    obs = env.get_observations()
    both = torch.cat((obs["actor"], obs["eye"].flatten(1)), dim=1)
    image = torch.cat((-obs["actor"], obs["eye"].flip(3).flatten(1)), dim=1)
    with torch.no_grad():
        torch.testing.assert_close(runner.actor.mean(image), -runner.actor.mean(both))
    assert runner.train(2)["iteration"] == 2
    del env.mirror["eye"]
    with pytest.raises(UserError, match="symmetry: 'network' needs a mirror of group 'eye', there is none"):
        Trainer(env, cfg)


@pytest.mark.parametrize("symmetry", ["none", "network"])
def test_what_is_seen_is_remembered(seeing, small_cfg, symmetry):
    env = seeing(num_envs=16)
    flip = torch.arange(48).view(4, 12).flip(1).reshape(-1)
    env.mirror = env.mirror | {"both": (torch.cat((torch.tensor([0]), 1 + flip)), torch.ones(49))}
    cfg = seeing_cfg(small_cfg, "both", "both.strip")
    actor = replace(cfg.actor, memory=MemoryCfg(kind="gru", hidden=16), output_gain=1.0)
    runner = Trainer(env, replace(cfg, symmetry=symmetry, actor=actor))
    before = [weight.detach().clone() for weight in runner.actor.encoders.parameters()]
    assert math.isfinite(runner.train(2)["loss/value"])
    assert all(not torch.equal(a, b) for a, b in zip(before, runner.actor.encoders.parameters(), strict=True))
    if symmetry == "network":
        obs, state = env.get_observations()["both"], torch.zeros(16, runner.actor.state_size)
        image = reflect(obs, env.mirror["both"])
        with torch.no_grad():
            (here, after), (there, mirrored) = (runner.actor.step(runner.actor.encode(x), state) for x in (obs, image))
            torch.testing.assert_close(there, -here)
            here, _ = runner.actor.step(runner.actor.encode(obs), after)
            there, _ = runner.actor.step(runner.actor.encode(image), mirrored)
            torch.testing.assert_close(there, -here)


def test_settings_are_named_with_the_network_they_belong_to(seeing, small_cfg):
    env = seeing()
    cfg = replace(small_cfg, actor_groups=("eye",))
    with pytest.raises(UserError, match=r"actor_groups: group 'eye' has shape \(num_envs, 1, 4, 12\), .*\[eye\]"):
        make_env_spec(env, cfg)
    cfg = replace(small_cfg, critic=make_cfg(ConvCfg(groups=("eye",))))
    with pytest.raises(UserError, match=r"critic\.conv\.groups: 'eye' is nothing that this network observes"):
        make_env_spec(env, cfg)
    for setting in ("kernels", "strides"):
        large = ConvCfg(groups=("eye",), **{setting: (13,)})
        with pytest.raises(UserError, match=rf"actor\.conv\.{setting}: 13 is larger"):
            make_env_spec(env, replace(small_cfg, actor_groups=("eye",), actor=make_cfg(large)))


def test_one_vector_and_images_have_a_place_in_a_contract():
    scan = ConvCfg(groups=("eye",), channels=(2,))
    actor = Actor(ObservationLayout({"actor": (3,), "eye": (1, 8, 8)}), 2, make_cfg(scan))
    obs = torch.randn(5, 3 + 64)
    torch.testing.assert_close(actor.export_module()(obs), actor.mean(obs))
    with pytest.raises(UserError, match="export: the policy sees the vectors actor, more"):
        Actor(ObservationLayout({"actor": (3,), "more": (4,)}), 2, make_cfg(ConvCfg())).export_module()
