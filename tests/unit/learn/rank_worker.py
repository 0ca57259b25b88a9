"""One of the processes of test_ranks.py: trains a small task in several ways and writes the results.

RANK=.. WORLD_SIZE=.. MASTER_ADDR=.. MASTER_PORT=.. python rank_worker.py <directory> <case> ...
"""

import json
import os
import signal
import sys
from dataclasses import fields, replace
from pathlib import Path

import torch
from rsl_rl.env import VecEnv
from safetensors.torch import save_file
from tensordict import TensorDict

from robot_rl.errors import Interrupted, PeerError, UserError
from robot_rl.learn.algorithms.distill.config import DistillLearnerCfg, TeacherCfg
from robot_rl.learn.algorithms.ppo import targets
from robot_rl.learn.algorithms.ppo.config import PPOCfg, PPOLearnerCfg
from robot_rl.learn.ranks import SINGLE_PROCESS, make_process_group
from robot_rl.learn.trainer import Trainer
from robot_rl.settings import MemoryCfg, NetworkCfg

WORLDS = 32
IN_DIRECTORY = ("distilled", "taught", "resumed", "broken", "stopped", "refused")
CFG = PPOLearnerCfg(
    num_steps=6,
    save_interval=2,
    stagger_episodes=False,
    actor=NetworkCfg(hidden=(16, 16), init_std=0.5),
    critic=NetworkCfg(hidden=(16, 16), output_gain=1.0),
    ppo=PPOCfg(learning_rate=3e-3, entropy_coef=0.01, epochs=3, minibatches=1),
)


def settings_of(cfg):
    return {field.name: getattr(cfg, field.name) for field in fields(cfg)}


class Line(VecEnv):
    """Points on a line, of which every process has some; what a world draws depends only on its index among all.

    The worlds of the second half live at another place and are paid ten times as much: statistics of one half are far
    from those of all.
    """

    def __init__(self, ranks, quarantine=False):
        self.num_envs, self.num_actions, self.max_episode_length = WORLDS // ranks.size, 1, 7
        self.device, self.cfg, self.step_dt = torch.device("cpu"), {}, 0.1
        self.mirror = {
            "actor": (torch.tensor([0]), torch.tensor([-1.0])),
            "critic": (torch.tensor([0, 1]), torch.tensor([-1.0, 1.0])),
            "action": (torch.tensor([0]), torch.tensor([-1.0])),
        }
        first = ranks.rank * self.num_envs
        self.mine = slice(first, first + self.num_envs)
        self.generator = torch.Generator().manual_seed(11)
        self.episode_length_buf = torch.arange(WORLDS)[self.mine] % 7
        self.far = (torch.arange(WORLDS) >= WORLDS // 2)[self.mine]
        self.quarantine, self.steps = quarantine, 0
        self.pos = self.draw()

    def draw(self):
        drawn = torch.rand(WORLDS, generator=self.generator)[self.mine] * 4.0 - 2.0
        return torch.where(self.far, drawn + 3.0, drawn)

    def state_dict(self):
        return {"pos": self.pos, "length": self.episode_length_buf, "random": self.generator.get_state()}

    def load_state_dict(self, tensors):
        self.pos, self.episode_length_buf = tensors["pos"].clone(), tensors["length"].clone()
        self.generator.set_state(tensors["random"])

    def get_observations(self):
        age = self.episode_length_buf / self.max_episode_length
        groups = {"actor": self.pos[:, None].clone(), "critic": torch.stack((self.pos, age), dim=-1)}
        return TensorDict(groups, batch_size=[self.num_envs])

    def step(self, actions):
        self.steps += 1
        self.pos = self.pos + 0.5 * actions[:, 0].clamp(-1.0, 1.0)
        reward = -self.pos.square() * torch.where(self.far, 10.0, 1.0)
        self.episode_length_buf += 1
        time_outs = self.episode_length_buf >= self.max_episode_length
        extras = {"time_outs": time_outs, "final_obs": self.get_observations(), "log": {"/distance": self.pos.abs()}}
        if self.quarantine:  # Worlds 3 and 20 in turn: the halves never have the same number of valid samples.
            sick = (torch.arange(WORLDS) == (3 if self.steps % 3 else 20))[self.mine]
            extras["valid"], reward = ~sick, torch.where(sick, 1e6, reward)
        self.pos = torch.where(time_outs, self.draw(), self.pos)
        self.episode_length_buf[time_outs] = 0
        return self.get_observations(), reward, time_outs, extras


def draw_alike(runner, ranks):
    """Let the worlds' action noise depend on their index among all, as one process would draw it."""
    source = torch.Generator().manual_seed(5)

    def draw(noise, generator):
        steps, worlds, width = noise.shape
        everything = torch.randn(steps, worlds * ranks.size, width, generator=source)
        noise.copy_(everything[:, ranks.rank * worlds : (ranks.rank + 1) * worlds])

    runner.actor.distribution.draw_noise = draw


def outcome(runner, row):
    state = {name: tensor.clone() for name, tensor in (runner.networks() | runner.state()).items()}
    return state, {name: value for name, value in row.items() if not name.startswith(("perf/", "time_s"))}


def train(ranks, cfg=CFG, quarantine=False, iterations=3):
    runner = Trainer(Line(ranks, quarantine), cfg, seed=7, ranks=ranks)
    draw_alike(runner, ranks)
    return outcome(runner, runner.train(iterations))


def equal(ranks):
    return train(ranks)


def quarantined(ranks):
    return train(ranks, quarantine=True)


def mirrored(ranks):
    return train(ranks, replace(CFG, symmetry="augment"), quarantine=True)


def make_student(ranks, directory, **teacher):
    """A student's settings; its teacher sees what the critic does."""
    path = directory / f"teacher-{ranks.size}-{ranks.rank}"
    cfg = replace(CFG, actor_groups=("critic",), actor=replace(CFG.actor, output_gain=1.0))
    Trainer(Line(SINGLE_PROCESS), cfg, run_dir=path, seed=3).save()
    return DistillLearnerCfg(**settings_of(CFG) | {"name": "distill", "teacher": TeacherCfg(run=str(path), **teacher)})


def distilled(ranks, directory):
    return train(ranks, make_student(ranks, directory, mix=0.0), quarantine=True)


def taught(ranks, directory):
    """Half of the worlds follow the teacher; the third iteration again from a checkpoint, in fresh worlds."""
    cfg = make_student(ranks, directory, mix=0.5, mix_until=1.0)
    cfg = replace(cfg, ppo=replace(cfg.ppo, minibatches=4))
    whole = Trainer(Line(ranks), cfg, run_dir=directory / "taught", seed=7, ranks=ranks)
    whole.train(2)
    again = Trainer(Line(ranks), cfg, seed=99, ranks=ranks)
    again.load(whole.checkpoint)
    (first, one), (second, two) = (outcome(runner, runner.train(3)) for runner in (whole, again))
    same = all(torch.equal(first[name], second[name]) for name in first) and one == two
    return second | {"follows": again.algorithm.auxiliaries[0].hook._follows}, two | {"same": float(same)}


def by_itself(ranks):
    """The usual mistake: each process normalizes the advantages by its own mean and deviation."""
    normalize = targets.normalize
    targets.normalize = lambda advantage, valid, _: normalize(advantage, valid, SINGLE_PROCESS)
    try:
        return train(ranks)
    finally:
        targets.normalize = normalize


def minibatches(ranks):
    """As a training is: minibatches and noise of its own in each process, the adaptive schedule."""
    cfg = replace(CFG, ppo=replace(CFG.ppo, minibatches=4, epochs=2))
    runner = Trainer(Line(ranks), cfg, seed=7, ranks=ranks)
    state, row = outcome(runner, runner.train(4))
    return state | {"noise": runner.collector.rollout.noise.clone()}, row


def resumed(ranks, directory):
    """Two iterations, a checkpoint, a third; and the third again from the checkpoint, in fresh worlds.

    With a memory, so that each process has something of its worlds to remember.
    """
    memory = MemoryCfg(kind="gru", hidden=4, sequence=3)
    cfg = replace(CFG, ppo=replace(CFG.ppo, minibatches=4), actor=replace(CFG.actor, memory=memory))
    whole = Trainer(Line(ranks), cfg, run_dir=directory / "run", seed=7, ranks=ranks)
    whole.train(2)
    again = Trainer(Line(ranks), cfg, seed=99, ranks=ranks)
    again.load(whole.checkpoint)
    (first, one), (second, two) = (outcome(runner, runner.train(3)) for runner in (whole, again))
    first, second = ({**state, **runner.worlds()} for state, runner in ((first, whole), (second, again)))
    same = all(torch.equal(first[name], second[name]) for name in first) and one == two
    files = sorted(path.name for path in whole.checkpoint.iterdir())
    return {}, two | {"same": float(same), "remembered": len(whole.worlds()), "files": files}


def error_line(work):
    try:
        work()
    except (FloatingPointError, Interrupted, PeerError, UserError) as error:
        return f"{type(error).__name__}: {error}"
    return "nothing"


def broken(ranks, directory):
    """One process's rewards are no numbers from the second iteration on."""
    env = Line(ranks)
    step = env.step

    def sick(actions):
        obs, reward, done, extras = step(actions)
        return obs, reward * (float("nan") if ranks.rank == ranks.size - 1 and env.steps > 6 else 1.0), done, extras

    env.step = sick
    runner = Trainer(env, CFG, run_dir=directory / "broken", seed=7, ranks=ranks)
    return {}, {"error": error_line(lambda: runner.train(5)), "iteration": runner.iteration}


def stopped(ranks, directory):
    """One process gets a scheduler's signal in the second iteration, and torchrun's echo of it."""

    def notify(row):
        if ranks.rank == ranks.size - 1 and row["iteration"] == 2:
            for _ in range(2):
                os.kill(os.getpid(), signal.SIGUSR1)

    runner = Trainer(Line(ranks), CFG, run_dir=directory / "stopped", seed=7, ranks=ranks, observer=notify)
    error = error_line(lambda: runner.train(5))
    return {}, {"error": error, "saved": str((directory / "stopped" / "checkpoints" / "000002").is_dir())}


def refused(ranks, directory):
    """What the first process cannot do ends the others; what cannot be divided is named."""

    def fail():
        raise UserError("root=/x: cannot make it")

    answer = ranks.first(lambda: {"path": "there"})
    return {}, {
        "error": error_line(lambda: ranks.first(fail)),
        "divided": error_line(lambda: ranks.share(33, "num_envs")),
        "answer": answer["path"],
        "everyone": ranks.gather({"rank": ranks.rank, "nan": float("nan")})[-1]["rank"],
        "any": ranks.any([ranks.rank == 0, False]),
    }


def lose(ranks, directory):
    """The other process ends in the middle of an iteration, without a word."""
    env = Line(ranks)
    step = env.step

    def vanish(actions):
        if ranks.rank == 1 and env.steps == 8:
            os._exit(0)
        return step(actions)

    env.step = vanish
    runner = Trainer(env, CFG, seed=7, ranks=ranks)
    (directory / "lost.txt").write_text(error_line(lambda: runner.train(3)))


def main():
    directory = Path(sys.argv[1])
    torch.set_num_threads(1)
    ranks = make_process_group("cpu")
    results = {}
    cases = [case for case in sys.argv[2:] if case != "lost"]
    for case in cases:
        work = globals()[case]
        takes = (ranks, directory) if case in IN_DIRECTORY else (ranks,)
        tensors, results[case] = work(*takes)
        if tensors:
            save_file(tensors, directory / f"{case}-{ranks.size}-{ranks.rank}.safetensors")
    (directory / f"results-{ranks.size}-{ranks.rank}.json").write_text(json.dumps(results))
    if len(cases) < len(sys.argv[2:]):
        lose(ranks, directory)


if __name__ == "__main__":
    main()
