"""The tree of a training run, and what it resolves to."""

import pytest
import torch
from robot_rl_tasks.registry import get_task, list_tasks

from robot_rl.errors import UserError
from robot_rl.learn.algorithms.ppo.config import PPOLearnerCfg
from robot_rl.runs.run_dir import RunDir
from robot_rl.runs.settings import default_tree, load, resolve, resolve_device
from robot_rl.settings import apply_overrides, to_dict
from robot_rl.settings import tree as trees


@pytest.mark.parametrize("name", list_tasks())
def test_the_defaults_of_every_task_resolve_to_the_task(name):
    cfg = resolve(default_tree(name, "cpu", "ppo"))
    task = get_task(name)
    assert trees.task_tree(cfg.task) == trees.task_tree(task)
    assert cfg.learner == apply_overrides(PPOLearnerCfg(), {**task.learner, **task.learner_cpu})
    assert (cfg.num_envs, cfg.device, cfg.engine, cfg.seed, cfg.wandb) == (task.num_envs[0], "cpu", "mujoco", 1, "off")


def test_a_gpu_gets_its_own_presets(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    task = get_task("go2_flat")
    tree = default_tree("go2_flat", "cuda:1")
    assert tree["num_envs"] == task.num_envs[1]
    assert tree["actor"]["hidden"] == to_dict(apply_overrides(PPOLearnerCfg(), task.learner))["actor"]["hidden"]
    assert resolve_device("auto") == "cuda:0"
    assert resolve_device("cuda") == "cuda:0"
    with pytest.raises(UserError, match="device=cuda:2: 2 GPUs found"):
        resolve_device("cuda:2")
    with pytest.raises(UserError, match="engine='mujoco' runs on the CPU"):
        resolve(tree | {"engine": "mujoco"})


def test_a_requested_gpu_that_is_missing_is_refused(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert resolve_device("auto") == "cpu"
    with pytest.raises(UserError, match="device=cuda: torch finds no GPU here; use device=cpu"):
        default_tree("cartpole", "cuda")


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("num_envs", 0, "num_envs=0: must be in [1, 1048576]"),
        ("num_envs", 10**11, "must be in [1, 1048576]"),
        ("num_envs", -4, "num_envs=-4: must be"),
        ("num_envs", 1.5, "num_envs=1.5: must be"),
        ("num_envs", "many", "num_envs=many: must be"),
        ("num_envs", True, "num_envs=true: must be"),
        ("num_threads", -1, "num_threads=-1: must be"),
        ("seed", -1, "seed=-1: must be in [0, 2147483647]"),
        ("seed", 2**31, "must be in [0, 2147483647]"),
        ("device", "gpu", "device=gpu: must be auto, cpu, cuda or cuda:<index>"),
        ("device", "cuda:x", "device=cuda:x: must be"),
        ("engine", "mujocco", "did you mean 'mujoco'?"),
        ("learner", "ppp", "must be one of distill, flashsac, mappo, ppo, rsl_rl, world_model"),
        ("max_iterations", "many", "max_iterations=many: must be a whole number"),
        ("metrics.wandb", "yes", "metrics.wandb=yes: must be one of off, offline, online"),
        ("ppo.gamma", 1.5, "ppo.gamma=1.5: must be in"),
        ("actor.hidden", [0], "actor.hidden=0: must be in"),
        ("init_from", "../../etc", "init_from=../../etc: not a run in runs"),
        ("task", "go2flat", "did you mean 'go2_flat'?"),
    ],
)
def test_bad_input_is_one_line_that_names_it(in_tmp, key, value, message):
    tree = trees.override(default_tree("cartpole", "cpu"), {key: value})
    with pytest.raises(UserError) as error:
        resolve(tree)
    assert message in str(error.value)
    assert "\n" not in str(error.value)


def test_a_bare_off_is_a_word():
    tree = trees.override(default_tree("cartpole", "cpu"), {"metrics.wandb": False})
    assert resolve(tree).wandb == "off"


def test_what_resolved_is_written_into_the_tree():
    tree = resolve(default_tree("cartpole", "cpu")).tree
    assert (tree["device"], tree["engine"]) == ("cpu", "mujoco")


def test_a_run_is_loaded_with_its_settings(small_run):
    run_dir = RunDir(small_run)
    cfg = load(run_dir)
    assert (cfg.num_envs, cfg.learner.num_steps, cfg.learner.actor.hidden, cfg.num_threads) == (4, 4, (8,), 1)
    assert cfg.root == small_run.parent.parent
    again = load(run_dir, {"rewards.upright.weight": 4, "max_iterations": 9})
    assert (again.task.rewards["upright"].weight, again.learner.max_iterations) == (4.0, 9)
    with pytest.raises(UserError, match=r"did you mean 'rewards.upright.weight'"):
        load(run_dir, {"rewards.uprigth.weight": 4})


def test_a_run_of_a_task_that_has_changed_names_the_run_and_the_task(tmp_path):
    tree = default_tree("cartpole", "cpu")
    tree["rewards"]["air"] = {"weight": 1.0}
    tree["ppo"]["swing"] = 1.0
    run_dir = RunDir.create(tmp_path, "cartpole", 1)
    run_dir.write_config(tree, ["robot-rl"])
    with pytest.raises(
        UserError, match=rf"run={run_dir.run_id}: task=cartpole has changed .*: rewards.air is now unknown"
    ):
        load(run_dir)
    del tree["rewards"]["air"]
    run_dir.write_config(tree, ["robot-rl"])
    with pytest.raises(
        UserError, match=r"learner=ppo has changed since it began: ppo.swing is now unknown; restore the"
    ):
        load(run_dir)


def test_a_run_with_a_configuration_that_lacks_something(tmp_path):
    run_dir = RunDir.create(tmp_path, "cartpole", 1)
    run_dir.write_config({"task": "cartpole"}, ["robot-rl"])
    with pytest.raises(UserError, match=r"run.yaml: damaged, 'config' lacks seed, num_envs"):
        load(run_dir)
