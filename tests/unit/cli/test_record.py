"""record writes the motion of a policy, and a training uses it as its motion prior."""

import json

import pytest
import torch
from safetensors.torch import load_file

from robot_rl.evaluation.rollout import record_motion
from robot_rl.learn.auxiliaries.motions import read_motion
from robot_rl.runs.run_dir import RunDir


@pytest.fixture(scope="module")
def recorded(small_run, tmp_path_factory):
    from robot_rl.cli.main import main

    path = tmp_path_factory.mktemp("motion") / "motion.safetensors"
    words = [f"run={small_run.name}", f"root={small_run.parent.parent}", f"out={path}", "seconds=2", "worlds=3"]
    assert main(["record", *words]) == 0
    return path


def test_the_file(recorded):
    motion = read_motion(recorded)
    names = ("joint_pos.slider", "joint_pos.hinge", "joint_vel.slider", "joint_vel.hinge")
    assert motion.components[: len(names)] == names
    frames, starts = (load_file(recorded)[name] for name in ("frames", "episode_starts"))
    assert len(frames) == 3 * round(2 / motion.step_dt)
    assert motion.pairs.shape == (len(frames) - int(starts.sum()), 2, len(motion.components))
    assert float(motion.pairs.abs().max()) > 0.0


@pytest.mark.long
def test_a_prior_learns_from_it(run, in_tmp, tiny, recorded):
    words = ["amp.weight=0.5", f"amp.motions={recorded}", "amp.hidden=[8]", "amp.batch=16", "amp.replay=64"]
    code, _, err = run("train", "task=cartpole", *tiny, *words, "rnd.weight=0.1", "rnd.hidden=[8]")
    assert code == 0, err
    run_dir = RunDir.find("latest")
    rows = [json.loads(line) for line in (run_dir.path / "metrics.jsonl").read_text().splitlines()]
    assert all(0.0 <= row["amp/reward"] <= 1.0 and row["rnd/reward"] > 0.0 for row in rows)
    assert run_dir.read_config()["config"]["amp"]["motions"] == str(recorded)
    # Only training adds the group: everything else that reads the run has its task unchanged.
    code, _, err = run("resume", run_dir.run_id, "max_iterations=3")
    assert code == 0, err
    assert run("train", "task=cartpole", *tiny.but("num_steps=1"), *words, "learner=rsl_rl")[0] == 2


def test_another_robots_motion_is_refused(run, in_tmp, tiny, recorded):
    words = ["num_envs=2", "num_threads=1", "symmetry=none", "amp.weight=0.5", f"amp.motions={recorded}"]
    code, _, err = run("train", "task=go2_flat", *words)
    assert code == 2
    assert "has 14 components (joint_pos.slider, joint_pos.hinge ... gravity.z)" in err
    assert "group 'motion' of the environment has 34 (joint_pos.FL_hip_joint" in err
    assert not list(in_tmp.glob("runs/go2_flat/*"))


BAD = [
    (["seconds=0"], "seconds=0.0: must be in (0, 3600]"),
    (["worlds=0"], "worlds=0: must be in [1, 65536]"),
    (["group=motoin"], "group=motoin: cartpole lacks such a group of terms"),
    (["second=1"], "did you mean 'seconds'?"),
]


@pytest.mark.parametrize(("words", "line"), BAD)
def test_bad_words(run, small_run, words, line):
    code, _, err = run("record", f"run={small_run.name}", f"root={small_run.parent.parent}", *words)
    assert (code, line in err) == (2, True), err


class CountingEnv:
    """Two worlds that count steps; the second ends every third step, and is quarantined in the fifth."""

    num_envs, device, step_dt = 2, "cpu", 0.5

    def reset(self):
        self.steps = 0
        return self.observe()

    def observe(self):
        return {"motion": torch.tensor([[1.0, self.steps], [2.0, self.steps]])}

    def step(self, actions):
        self.steps += 1
        done = torch.tensor([False, self.steps % 3 == 0 or self.steps == 5])
        return self.observe(), None, done, {"valid": torch.tensor([True, self.steps != 5])}


class Nobody:
    def __init__(self):
        self.resets = []

    def __call__(self, obs):
        return None

    def reset(self, done=None):
        self.resets.append(done.tolist())


def test_frames_world_by_world():
    somebody = Nobody()
    frames, starts = record_motion(CountingEnv(), somebody, 3.0, "motion")
    first = [[1.0, k] for k in range(6)]
    assert frames.tolist() == first + [[2.0, k] for k in (0, 1, 2, 3, 5)]  # Step 5 began at frame 4.
    assert starts.tolist() == [True, *[False] * 5, True, False, False, True, True]
    assert somebody.resets[0] == [True, True]
    assert [k for k, (_, done) in enumerate(somebody.resets) if done] == [0, 3, 5, 6]
