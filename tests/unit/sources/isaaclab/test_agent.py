"""The settings of Isaac Lab's rsl_rl agents in this learner's names."""

from types import SimpleNamespace

from robot_rl.learn.algorithms.ppo.config import PPOLearnerCfg
from robot_rl.settings import apply_overrides
from robot_rl.sources.isaaclab.agent import action_clip, learner_changes

MISSING = object()


def agent(**changes):
    actor = SimpleNamespace(
        hidden_dims=[64, 32],
        activation="elu",
        obs_normalization=True,
        distribution_cfg=SimpleNamespace(init_std=0.7),
    )
    algorithm = SimpleNamespace(
        gamma=0.98,
        lam=0.9,
        clip_param=0.15,
        num_learning_epochs=3,
        num_mini_batches=2,
        learning_rate=5e-4,
        schedule="fixed",
        desired_kl=0.02,
        entropy_coef=0.0,
        value_loss_coef=2.0,
        max_grad_norm=0.5,
        use_clipped_value_loss=False,
    )
    fields = {
        "num_steps_per_env": 16,
        "max_iterations": 150,
        "save_interval": 50,
        "init_at_random_ep_len": False,
        "actor": actor,
        "critic": SimpleNamespace(hidden_dims=[8], activation="swish", distribution_cfg=None),
        "algorithm": algorithm,
        "obs_groups": {"actor": ["policy"], "critic": ["policy", "extra"]},
        "clip_actions": None,
    }
    return SimpleNamespace(**{**fields, **changes})


def test_every_setting_arrives():
    cfg = apply_overrides(PPOLearnerCfg(), learner_changes(agent(), {"policy": 1, "extra": 1}))
    assert (cfg.num_steps, cfg.max_iterations, cfg.save_interval, cfg.stagger_episodes) == (16, 150, 50, False)
    assert (cfg.actor.hidden, cfg.actor.activation, cfg.actor.init_std) == ((64, 32), "elu", 0.7)
    assert (cfg.critic.hidden, cfg.critic.activation) == ((8,), "silu")
    assert (cfg.actor_groups, cfg.critic_groups, cfg.normalize_obs) == (("policy",), ("policy", "extra"), True)
    ppo = cfg.ppo
    assert (ppo.gamma, ppo.lam, ppo.clip, ppo.epochs, ppo.minibatches) == (0.98, 0.9, 0.15, 3, 2)
    assert (ppo.learning_rate, ppo.schedule, ppo.desired_kl, ppo.entropy_coef) == (5e-4, "fixed", 0.02, 0.0)
    assert (ppo.value_coef, ppo.max_grad_norm, ppo.clip_value_loss) == (2.0, 0.5, False)


def test_without_an_agent_only_the_groups_are_given():
    assert learner_changes(None, {"policy": 1, "critic": 1}) == {
        "actor_groups": ["policy"],
        "critic_groups": ["critic"],
    }
    assert learner_changes(None, {"policy": 1}) == {"actor_groups": ["policy"], "critic_groups": ["policy"]}


def test_what_is_missing_or_unknown_keeps_this_learners_default():
    odd = agent(
        obs_groups=MISSING, actor=SimpleNamespace(hidden_dims=MISSING, activation="gelu"), max_iterations=MISSING
    )
    changes = learner_changes(odd, {"policy": 1})
    assert not {"actor.hidden", "actor.activation", "actor.init_std", "max_iterations"} & changes.keys()
    assert changes["actor_groups"] == ["policy"]


def test_a_memory_and_a_bound_of_the_actions():
    actor = SimpleNamespace(
        hidden_dims=[32], activation="elu", rnn_type="lstm", rnn_hidden_dim=48, rnn_num_layers=2, distribution_cfg=None
    )
    cfg = apply_overrides(PPOLearnerCfg(), learner_changes(agent(actor=actor), {"policy": 1, "extra": 1}))
    assert (cfg.actor.memory.kind, cfg.actor.memory.hidden, cfg.actor.memory.layers) == ("lstm", 48, 2)
    assert action_clip(agent(clip_actions=2)) == 2.0
    assert action_clip(agent()) is None
    assert action_clip(None) is None
