"""From a value to the policy through a sensor: bias, drift, noise, delay, lost values; each world by its own draws."""

import numpy as np
import pytest
import torch
from robot_rl_envs.make import make_env
from robot_rl_envs.mdp import observations, rewards, terminations
from robot_rl_envs.task import Observation, ObservationGroup, Reward, Termination

N, DT = 1024, 0.1
TERMS = {
    # name: (term, options); two values each
    "late": (observations.joint_pos_rel, {"delay_s": (0.0, 0.5)}),
    "fixed": (observations.joint_pos_rel, {"delay_s": (0.2, 0.2), "delay_steps": 4}),
    "lossy": (observations.joint_pos_rel, {"dropout": 0.3}),
    "biased": (observations.joint_vel, {"bias": 0.5}),
    "walking": (observations.joint_vel, {"drift": 0.2}),
    "gauss": (observations.joint_vel, {"noise": 0.4, "noise_kind": "gaussian"}),
    "all": (
        observations.joint_pos_rel,
        {"noise": 0.01, "bias": 0.1, "drift": 0.05, "delay_s": (0.0, 0.3), "dropout": 0.2, "scale": 2.0, "history": 2},
    ),
}
AT = {name: slice(2 * k, 2 * k + 2) for k, name in enumerate(TERMS)} | {"all": slice(12, 16)}


def sensed(noise):
    return ObservationGroup(terms={name: Observation(fn, **o) for name, (fn, o) in TERMS.items()}, noise=noise)


@pytest.fixture
def make_task(cart_task):
    def make(**fields):
        own = {
            "observations": {"actor": sensed(True), "critic": sensed(False)},
            "episode_length_s": 1000.0,
            "terminations": {"off_rail": Termination(terminations.joint_beyond, joint=0, limit=10.0)},
        }
        return cart_task(**(own | fields))

    return make


@pytest.fixture
def doll(puppet, make_task):
    return puppet(make_task(), num_envs=N)


def lags(doll):
    """Each world's drawn delay of `late` in steps, as the pipe holds it."""
    return doll.state.pipe_actor[:, 0].numpy().astype(int)


def walk(doll, steps):
    """Step with cart positions 0.01, 0.02, ...; return what the actor saw, (steps, N, width)."""
    seen = []
    for k in range(1, steps + 1):
        seen.append(doll.step(qpos=[0.01 * k, np.pi], qvel=[0.0, 0.0])[0]["actor"].numpy().copy())
    return np.stack(seen)


def copied(doll, steps, **fields):
    out = []
    for _ in range(steps):
        out.append(doll.step(**fields)[0]["actor"].numpy().copy())
    return np.stack(out)


def test_a_delay_is_exact_to_the_step_in_every_world(doll):
    lag = lags(doll)
    seen = np.stack(
        [doll.step(qpos=[0.01 * k, np.pi], qvel=[0.0, 0.0])[0]["actor"].numpy().copy() for k in range(1, 13)]
    )
    k = np.arange(1, 13)[:, None]
    # before the first value has come through, the first one of the episode is all there is: the cart at 0.25 m
    want = np.where(k - lag > 0, 0.01 * (k - lag), 0.25)
    np.testing.assert_allclose(seen[:, :, AT["late"].start], want, atol=1e-6)
    want = np.where(k - 2 > 0, 0.01 * (k - 2), 0.25) * np.ones((1, N))
    np.testing.assert_allclose(seen[:, :, AT["fixed"].start], want, atol=1e-6)


def test_delays_are_uniform_rounded_to_steps(doll):
    share = np.bincount(lags(doll), minlength=6) / N
    # [0, 0.5] s in steps of 0.1 s: half a bin at either end; standard error 0.0125
    np.testing.assert_allclose(share, [0.1, 0.2, 0.2, 0.2, 0.2, 0.1], atol=0.05)


def test_a_lost_value_is_the_last_that_arrived(doll):
    last, lost = np.full(N, 0.25), []
    for k in range(1, 25):
        now = doll.step(qpos=[0.01 * k, np.pi], qvel=[0.0, 0.0])[0]["actor"][:, AT["lossy"].start].numpy().copy()
        missing = np.isclose(now, last, atol=1e-7)
        np.testing.assert_allclose(now[~missing], 0.01 * k, atol=1e-6)
        lost.append(missing)
        last = now
    # 24 x 1024 tosses: standard error 0.003
    assert np.mean(lost) == pytest.approx(0.3, abs=0.012)
    assert abs(np.corrcoef(lost[3], lost[4])[0, 1]) < 0.15, "two steps share their luck"


def test_a_bias_stays_for_the_episode_and_a_thousand_resets_do_not_widen_it(puppet, make_task):
    doll = puppet(make_task(), num_envs=16)
    spread = []
    for _ in range(1000):
        doll.env.reset()
        spread.append(doll.env.get_observations()["actor"][:, AT["biased"]].numpy().copy())
    early, late = np.stack(spread[:500]), np.stack(spread[500:])
    for half in (early, late):
        assert np.abs(half).max() <= 0.5
        # uniform on +-0.5: 0.2887; 16000 draws, standard error 0.001
        assert half.std() == pytest.approx(0.5 / np.sqrt(3), abs=0.006)
    seen = copied(doll, 5, qpos=[0.0, np.pi], qvel=[0.0, 0.0])[:, :, AT["biased"]]
    np.testing.assert_allclose(seen, np.broadcast_to(seen[0], seen.shape), atol=1e-6)
    np.testing.assert_allclose(seen[0], spread[-1], atol=1e-6)


def test_a_drift_is_a_random_walk_in_time(doll):
    seen = copied(doll, 20, qpos=[0.0, np.pi], qvel=[0.0, 0.0])[:, :, AT["walking"]]
    np.testing.assert_allclose(seen.mean(axis=(1, 2)), 0.0, atol=0.02)
    for step in (0, 4, 19):
        # drift * sqrt(time); 2048 walks, relative standard error 1.6 %
        assert seen[step].std() == pytest.approx(0.2 * np.sqrt((step + 1) * DT), rel=0.07)
    moves = np.diff(seen, axis=0)
    assert abs(np.corrcoef(moves[3].ravel(), moves[4].ravel())[0, 1]) < 0.1
    doll.env.reset()
    assert np.abs(doll.env.get_observations()["actor"][:, AT["walking"]]).max() == 0.0


def test_gaussian_noise_has_its_standard_deviation(doll):
    noise = copied(doll, 4, qpos=[0.0, np.pi], qvel=[0.5, -1.0])[:, :, AT["gauss"]] - [0.5, -1.0]
    assert noise.std() == pytest.approx(0.4, rel=0.04)
    assert np.mean(np.abs(noise) > 0.8) == pytest.approx(0.0455, abs=0.01)


def test_the_critic_sees_the_clean_value(doll):
    for k in range(1, 8):
        critic = doll.step(qpos=[0.01 * k, np.pi + 0.1], qvel=[0.5, -1.0])[0]["critic"].numpy()
    clean = [0.07, 0.1, 0.07, 0.1, 0.07, 0.1, *[0.5, -1.0] * 3, 0.12, 0.2, 0.14, 0.2]
    np.testing.assert_allclose(critic, np.tile(clean, (N, 1)), atol=1e-5)
    assert not hasattr(doll.state, "pipe_critic")


def test_a_muted_group_has_the_clean_values_to_the_bit(puppet, make_task):
    observations = {"actor": sensed(True), "critic": sensed(False)}
    observations["actor"].muted = True
    doll = puppet(make_task(observations=observations), num_envs=4)
    for k in range(1, 8):
        obs = doll.step(qpos=[0.01 * k, np.pi + 0.1], qvel=[0.5, -1.0])[0]
        assert torch.equal(obs["actor"], obs["critic"])


def test_a_reset_fills_the_ring_and_the_final_observation_is_the_old_episode_s(doll):
    for k in range(1, 8):
        doll.step(qpos=[0.01 * k, np.pi], qvel=[0.0, 0.0])
    lag = lags(doll)
    qpos = np.tile([0.08, np.pi], (N, 1))
    qpos[::2, 0] = 11.0
    obs, _, dones, extras = doll.step(qpos=qpos, qvel=[0.0, 0.0])
    np.testing.assert_array_equal(np.flatnonzero(dones), np.arange(0, N, 2))
    newest = np.where(np.arange(N) % 2 == 0, 11.0, 0.08)
    want = np.where(lag == 0, newest, 0.01 * (8 - lag))
    final = extras["final_obs"]["actor"][:, AT["late"].start].numpy()
    np.testing.assert_allclose(final[::2], want[::2], atol=1e-6)
    seen = obs["actor"][:, AT["late"].start].numpy()
    np.testing.assert_allclose(seen[1::2], want[1::2], atol=1e-6)
    np.testing.assert_allclose(seen[::2], 0.25, atol=1e-6)
    assert (lags(doll)[::2] != lag[::2]).any(), "the delay is drawn again"
    np.testing.assert_array_equal(lags(doll)[1::2], lag[1::2])
    # nothing of the old episode comes through later
    after = np.stack([doll.step(qpos=[0.5, np.pi], qvel=[0.0, 0.0])[0]["actor"].numpy().copy() for _ in range(6)])
    assert set(np.round(np.unique(after[:, ::2, AT["late"].start]), 4)) <= {0.25, 0.5}
    assert set(np.round(np.unique(after[:, ::2, AT["lossy"].start]), 4)) <= {0.25, 0.5}


def test_figures_are_live(doll):
    env = doll.env
    env.set_param("observations.actor.lossy.dropout", 0.0)
    env.set_param("observations.actor.fixed.delay_s.0", 0.4)
    env.set_param("observations.actor.fixed.delay_s.1", 9.0)
    env.set_param("observations.actor.biased.bias", 0.0)
    env.reset()
    seen = np.stack(
        [doll.step(qpos=[0.01 * k, np.pi], qvel=[0.0, 0.0])[0]["actor"].numpy().copy() for k in range(1, 8)]
    )
    np.testing.assert_allclose(seen[:, :, AT["lossy"].start], 0.01 * np.arange(1, 8)[:, None] * np.ones(N), atol=1e-6)
    np.testing.assert_allclose(seen[:, :, AT["biased"]], 0.0, atol=1e-6)
    # no more than the four steps that are kept
    np.testing.assert_allclose(seen[6, :, AT["fixed"].start], 0.03, atol=1e-6)


def test_the_same_bits_at_any_number_of_threads_and_after_a_restore(make_task):
    def run(env, steps, seed):
        generator = torch.Generator().manual_seed(seed)
        return [
            {
                k: v.clone()
                for k, v in env.step(torch.randn(env.num_envs, env.num_actions, generator=generator))[0].items()
            }
            for _ in range(steps)
        ]

    task = make_task(episode_length_s=0.8)
    envs = [make_env(task, num_envs=600, engine="mujoco", num_threads=threads, seed=3) for threads in (1, 3)]
    runs = [run(env, 12, 0) for env in envs]
    kept = envs[0].state_dict()
    runs[0] += run(envs[0], 12, 1)
    fresh = make_env(task, num_envs=600, engine="mujoco", num_threads=2, seed=3)
    fresh.load_state_dict(kept)
    runs[1] += run(fresh, 12, 1)
    for one, other in zip(*runs, strict=True):
        for name in one:
            assert torch.equal(one[name], other[name])
    assert "state.pipe_actor" in kept


def test_a_plain_term_has_no_text_for_what_it_does_not_ask_for(puppet, cart_task):
    plain = ObservationGroup(terms={"speed": Observation(observations.joint_vel, noise=0.1, history=2)})
    env = puppet(cart_task(observations={"actor": plain}, rewards={"alive": Reward(rewards.alive, weight=1.0)})).env
    assert "pipe_" not in env.kernels.source
    assert not [name for name in env.params() if name.endswith(("bias", "drift", "dropout", "delay_s.0"))]


@pytest.mark.parametrize(
    ("options", "line"),
    [
        ({"noise_kind": "pink"}, r"noise_kind='pink': must be one of uniform, gaussian"),
        ({"bias": -0.1}, r"bias=-0\.1: must be >= 0"),
        ({"drift": float("nan")}, r"drift=nan: must be a finite number"),
        ({"drift": 1e39}, r"drift=1e\+39: must be a finite number"),  # Not in float32.
        ({"dropout": 1.0}, r"dropout=1\.0: must be less than 1"),
        ({"delay_s": 0.1}, r"delay_s=0\.1: must be \(lo, hi\)"),
        ({"delay_s": (0.2, 0.1)}, r"delay_s=\(0\.2, 0\.1\): must be \(lo, hi\) with 0 <= lo <= hi"),
        ({"delay_steps": 2.5}, r"delay_steps=2\.5: must be an int in \[0, 100\]"),
        ({"delays": 3}, r"parameters delays given, wants none"),
    ],
)
def test_bad_options_are_named(options, line):
    with pytest.raises(ValueError, match=line):
        Observation(observations.joint_vel, **options)


@pytest.mark.parametrize(
    ("options", "line"),
    [
        (
            {"delay_s": (0.0, 0.5), "delay_steps": 2},
            r"observations\.actor\.speed\.delay_s=\(0\.0, 0\.5\): 0\.5 s are 5 control steps of 0\.1 s, but only 2 are "
            r"kept \(0\.2 s, delay_steps=2\); set delay_steps to 5 or more",
        ),
        ({"delay_s": (0.0, 30.0)}, r"300 control steps of 0\.1 s, but only 100 are kept .* take a shorter delay"),
    ],
)
def test_a_delay_longer_than_what_is_kept_is_refused_when_built(cart_task, options, line):
    terms = {"speed": Observation(observations.joint_vel, **options)}
    with pytest.raises(ValueError, match=line):
        make_env(cart_task(observations={"actor": ObservationGroup(terms=terms)}), num_envs=2)
