"""Stepping Isaac Lab's environments: direct and manager-based; ends, seeds, settings, histories."""

import pytest
import torch

pytestmark = pytest.mark.isaac
CARTPOLES = ("Isaac-Cartpole", "Isaac-Cartpole-Direct")


@pytest.mark.parametrize("name", CARTPOLES)
def test_a_cartpole_steps_and_returns_its_last_observations(make, name):
    env = make(name, num_envs=5)
    assert env.get_observations()["policy"].shape == (5, 4)
    assert (env.num_actions, env.action_choices, env.max_episode_length) == (1, None, 300)
    assert env.step_dt == pytest.approx(1 / 60)
    env.episode_length_buf.copy_(torch.tensor([0, 297, 0, 0, 0]))
    ended = {}
    push = torch.tensor([[0.0], [0.0], [4.0], [0.0], [0.0]])
    for step in range(45):
        before = env.get_observations()["policy"]
        obs, reward, done, extras = env.step(push)
        assert torch.isfinite(obs["policy"]).all()
        assert reward.shape == (5,)
        last, now = extras["final_obs"]["policy"], obs["policy"]
        assert torch.equal(last[~done], now[~done])
        for world in done.nonzero().ravel().tolist():
            ended.setdefault(world, (step, bool(extras["time_outs"][world]), last[world].clone()))
            # The last observation goes on from the one before, the next begins elsewhere.
            assert abs(last[world, 0] - before[world, 0]) < 0.5
            assert abs(now[world, 0]) <= 1.0
    assert ended[1][:2] == (2, True)
    step, timed_out, last = ended[2]
    assert not timed_out
    assert abs(last[0]) > 3.0


@pytest.mark.parametrize("name", CARTPOLES)
def test_the_same_seed_gives_the_same_episodes(make, name):
    def walk(seed):
        env = make(name, num_envs=3, seed=seed)
        seen = [env.get_observations()["policy"]]
        for _ in range(6):
            seen.append(env.step(torch.full((3, 1), 0.2))[0]["policy"])
        env.close()
        return torch.stack(seen)

    first, again, other = walk(7), walk(7), walk(8)
    assert torch.equal(first, again)
    assert not torch.equal(first, other)


def test_settings_and_presets_reach_the_environment(make):
    env = make(
        "Isaac-Cartpole",
        num_envs=2,
        physics="newton_mjwarp",
        settings={"rewards.alive.weight": 7.0, "rewards.pole_pos": None, "episode_length_s": 0.1},
    )
    terms = env.env.reward_manager.active_terms
    assert "pole_pos" not in terms
    assert env.env.reward_manager.get_term_cfg("alive").weight == 7.0
    assert env.max_episode_length == 6
    assert type(env.cfg.sim.physics).__name__ == "NewtonCfg"


def test_a_history_is_whole_in_the_last_observation(make):
    def remember(cfg):
        cfg.observations.policy.joint_pos_rel.history_length = 3
        cfg.episode_length_s = 5 / 60

    env = make("Isaac-Cartpole", num_envs=2, change=remember)
    seen = []
    for _ in range(5):
        obs, _, done, extras = env.step(torch.full((2, 1), 0.3))
        seen.append(extras["final_obs"]["policy"])
    assert done.all()
    assert extras["time_outs"].all()
    last, before = seen[-1][:, :6].view(2, 3, 2), seen[-2][:, :6].view(2, 3, 2)
    assert torch.equal(last[:, :2], before[:, 1:])
    assert not torch.equal(last[:, 2], before[:, 2])
    # The next episode begins with its own first frame in every place.
    first = obs["policy"][:, :6].view(2, 3, 2)
    assert torch.equal(first[:, 0], first[:, 2])
