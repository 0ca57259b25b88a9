"""The command line with an environment of Gymnasium: train, resume, eval, video, report, and what is refused."""

import contextlib
import json
import os
import signal

import numpy as np
import pytest
import torch
import yaml

from robot_rl.evaluation.rollout import evaluate_episodes
from robot_rl.learn.checkpoints.checkpoint import latest_checkpoint, load_checkpoint
from robot_rl.sources.gymnasium.task import GymTask

REACH = "task=gym:reach_worlds:Reach-v0"
TINY = ("num_envs=3", "num_steps=8", "max_iterations=2", "ppo.minibatches=2", "actor.hidden=[8]", "critic.hidden=[8]")


@pytest.fixture
def run(run, monkeypatch, reach_folder):
    """Calls the command line in the folder of reach_worlds.py; returns its exit code, stdout and stderr."""
    monkeypatch.chdir(reach_folder)
    return run


@pytest.fixture
def root(tmp_path):
    return tmp_path / "runs"


def train(run, root, *words, task=REACH):
    """A tiny run; its directory."""
    before = set(root.glob("*/*"))
    code, _, err = run("train", task, *TINY, f"root={root}", *words)
    assert code == 0, err
    (path,) = set(root.glob("*/*")) - before
    return path


def weights(path):
    tensors, _ = load_checkpoint(latest_checkpoint(path))
    return torch.cat([tensors[name].double().flatten() for name in sorted(tensors) if name.startswith("actor.")])


def test_episodes_without_a_limit(run, root):
    path = train(run, root, "env.max_episode_steps=-1", "seed=5")
    assert yaml.safe_load((path / "run.yaml").read_text())["config"]["env"]["max_episode_steps"] == -1
    with contextlib.closing(GymTask(name=REACH[5:], settings={"max_episode_steps": -1}).make_env(1)) as env:
        assert env.max_episode_length == 0
    code, _, err = run("eval", f"run={path.name}", f"root={root}", "episodes=2", "steps=5", f"out={root / 'e.json'}")
    assert code == 0, err
    assert json.loads((root / "e.json").read_text())["torch"]["length"]["mean"] == 5.0


def test_a_run_from_training_to_the_report(run, root):
    path = train(run, root, "env.target=0.25", "actions=rescale", "seed=5")
    assert path.parent.name == "gym-reach_worlds-Reach-v0"
    config = yaml.safe_load((path / "run.yaml").read_text())["config"]
    assert config["task"] == "gym:reach_worlds:Reach-v0"
    assert (config["engine"], config["vectorization"]) == ("gymnasium", "sync")
    assert config["env"] == {"max_episode_steps": 20, "target": 0.25, "kind": "near"}
    rows = [json.loads(line) for line in (path / "metrics.jsonl").read_text().splitlines()]
    assert [row["env_steps"] for row in rows] == [24, 48]
    name = "run=gym:reach_worlds:Reach-v0/latest"

    code, out, _ = run("eval", name, f"root={root}", "episodes=7")
    assert code == 0
    assert "7 episodes" in out
    evaluation = json.loads((path / "eval.json").read_text())
    assert evaluation["torch"]["length"] == {"mean": 20.0, "std": 0.0}
    assert evaluation["torch"]["return"]["mean"] < 0.0
    code, out, _ = run("eval", name, f"root={root}", "episodes=2", "steps=5", f"out={path / 'short.json'}")
    assert code == 0
    assert json.loads((path / "short.json").read_text())["torch"]["length"]["mean"] == 5.0

    code, out, _ = run("resume", path.name, f"root={root}", "max_iterations=3")
    assert code == 0
    assert latest_checkpoint(path).name == "000003"
    code, out, _ = run("video", name, f"root={root}", "seconds=0.4", "fps=10")
    assert code == 0
    assert (path / "video.mp4").stat().st_size > 0
    code, out, _ = run("report", name, f"root={root}")
    assert code == 0
    assert "gym:reach_worlds:Reach-v0" in (path / "report.html").read_text()

    for command, words in (("export", "no contract to write"), ("play", "robot-rl video films it")):
        code, out, err = run(command, name, f"root={root}")
        assert (code, out) == (2, "")
        assert words in err
        assert len(err.splitlines()) == 1


@pytest.mark.long
def test_the_same_seed_gives_the_same_bits(run, root):
    first, again, other = (train(run, root, f"seed={seed}") for seed in (3, 3, 4))
    assert torch.equal(weights(first), weights(again))
    assert not torch.equal(weights(first), weights(other))


@pytest.mark.long
def test_processes_learn_the_same_bits(run, root):
    sync, processes = (train(run, root, f"vectorization={kind}") for kind in ("sync", "async"))
    assert torch.equal(weights(sync), weights(processes))


def test_a_world_in_a_process_leaves_signals_to_the_learner(run, reach_folder):
    task = GymTask(name="gym:reach_worlds:Reach-v0", vectorization="async")
    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1)
    before = [signal.getsignal(number) for number in numbers]
    with contextlib.closing(task.make_env(2, seed=1)) as env:
        assert env.env.call("signals") == ((signal.SIG_IGN, signal.SIG_IGN, "_linger"),) * 2
        for process in env.env.processes:  # As a scheduler does it, to every process of a job.
            for number in numbers:
                os.kill(process.pid, number)
        env.step(torch.zeros(2, 1))
        assert all(process.is_alive() for process in env.env.processes)
    assert [signal.getsignal(number) for number in numbers] == before


def test_choices_are_learned(run, root):
    path = train(run, root, task="task=gym:CartPole-v1")
    assert load_checkpoint(latest_checkpoint(path))[1]["dims"]["choices"] == [2]
    path = train(run, root, task="task=gym:reach_worlds:Pick-v0")
    assert load_checkpoint(latest_checkpoint(path))[1]["dims"]["choices"] == [3, 2]
    assert run("eval", f"root={root}", "episodes=2")[0] == 0


def test_a_vector_environment_of_its_own_resets_in_the_next_step(run, root):
    path = train(run, root, "vectorization=own", "env.sutton_barto_reward=true", task="task=gym:CartPole-v1")
    assert run("eval", f"run={path.name}", f"root={root}", "episodes=4")[0] == 0
    evaluation = json.loads((path / "eval.json").read_text())["torch"]
    # The reward is -1 at the end and 0 before it, so a step too many or too few would be seen.
    assert evaluation["return"]["mean"] == -1.0
    assert 7 < evaluation["length"]["mean"] <= 500


@pytest.mark.long
def test_every_setting_can_be_printed_and_swept(run, root):
    code, out, _ = run("train", REACH, "--cfg", "job")
    assert code == 0
    settings = yaml.safe_load(out)
    assert settings["env"] == {"max_episode_steps": 20, "target": 0.5, "kind": "near"}
    assert settings["actor_groups"] == ["actor"]
    code, _, err = run("train", "-m", REACH, *TINY, f"root={root}", "env.target=0.1,0.2")
    assert code == 0, err
    assert len(list(root.glob("*/*/run.yaml"))) == 2


@pytest.mark.long
@pytest.mark.parametrize(
    ("words", "line"),
    [
        (
            ("task=gym:Pendulm-v1",),
            "task=gym:Pendulm-v1: Environment 'Pendulm' doesn't exist. Did you mean: 'Pendulum'?",
        ),
        (("task=CartPole-v1",), "an environment of Gymnasium is task=gym:CartPole-v1"),
        (("task=gym:nowhere:Reach-v0",), "cannot import nowhere; install it, or start where its file is"),
        (("task=gym:",), "write gym:<id> such as gym:HalfCheetah-v5"),
        (("task=gym:reach_worlds:Talk-v0",), "observation_space=Text("),
        ((REACH, "env.targt=1"), "unknown key 'env.targt': did you mean 'env.target'?"),
        ((REACH, "env.target=far"), "env.target=far: must be a number"),
        ((REACH, "vectorization=own"), "gym:reach_worlds:Reach-v0 has no vector environment of its own"),
        ((REACH, "vectorization=sinc"), "vectorization=sinc: must be one of sync, async, own"),
        ((REACH, "actions=squash"), "actions=squash: must be one of clip, rescale"),
        ((REACH, "engine=mujoco"), "brings its own physics; leave engine= out"),
        ((REACH, "num_threads=2"), "has none of ours; leave num_threads= out"),
        ((REACH, "rewards.track.weight=1"), "unknown key 'rewards.track.weight'"),
        ((REACH, "actor_groups=[eyes]"), "actor_groups: the environment has no group 'eyes', known: actor, critic"),
        (("task=gym:CartPole-v1", "learner=rsl_rl"), "learner=rsl_rl: the actions of gym:CartPole-v1 are choices"),
    ],
)
def test_what_is_refused(run, root, words, line):
    code, _, err = run("train", *words, f"root={root}")
    assert code == 2
    assert line in err
    assert len(err.strip().splitlines()) == 1
    assert not list(root.glob("*/*"))


def test_what_eval_refuses(run, root):
    train(run, root)
    code, _, err = run("eval", f"root={root}", "seconds=3")
    assert (code, "counts steps; give steps=" in err) == (2, True)
    code, _, err = run("eval", f"root={root}", "steps=-1")
    assert (code, "steps=-1: must be in [0," in err) == (2, True)


def test_every_world_plays_its_share_of_whole_episodes(walks):
    for mode in ("NextStep", "SameStep", "Disabled"):
        env = walks(mode, num_envs=2)
        result = evaluate_episodes(env, lambda obs: torch.zeros(2, 2), 5, 9)
        # World 0 plays numbers 0, 1, 2 (3, 4, 5 steps), world 1 numbers 1, 2 (4, 5 steps); step k brings k.
        lengths = np.array([3, 4, 5, 4, 5])
        returns = lengths * (lengths + 1) / 2
        assert result["episodes"] == 5
        assert result["torch"]["length"] == pytest.approx({"mean": lengths.mean(), "std": lengths.std(ddof=1)})
        assert result["torch"]["return"] == pytest.approx({"mean": returns.mean(), "std": returns.std(ddof=1)})


def test_an_episode_without_end_is_cut_short(run, root):
    train(run, root, task="task=gym:reach_worlds:Endless-v0")
    assert run("eval", f"root={root}", "steps=6", "episodes=2", f"out={root / 'e.json'}")[0] == 0
    assert json.loads((root / "e.json").read_text())["torch"]["length"]["mean"] == 6.0
