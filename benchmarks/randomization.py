"""What each family of randomization costs on go2_flat: the share of a control step that its kernels and copies take.

    python benchmarks/randomization.py [worlds=256] [rounds=15]

Physics is left out while a variant is timed: randomized physics takes more or fewer solver iterations, which is no
cost of randomizing. Physics with every field per world, all at their nominal values, is compared with go2_flat's own.
Processor time, one thread, medians over rounds in turns. Worlds end by their time limit of 20 s, at random ages.
"""

import copy
import time
from typing import Any

import numpy as np
import torch
from harness import in_turn
from robot_rl_envs.env import Env
from robot_rl_envs.make import make_env
from robot_rl_envs.mdp import commands, curricula, events, randomize
from robot_rl_envs.task import Command, Curriculum, Event
from robot_rl_tasks.registry import get_task
from words import read_words, run_script

STEPS = 20
RANGES = {"vx_lo": -1.0, "vx_hi": 1.5, "vy_lo": -0.6, "vy_hi": 0.6, "yaw_lo": -1.0, "yaw_hi": 1.0}
HEADING = {"stiffness": 0.8, "heading_share": 0.8, "standing": 0.1, "min_speed": 0.15, "range_lo": 0.3}
WRENCH = {"force_xy": 30.0, "force_z": 10.0, "torque": 3.0, "duration_lo": 0.1, "duration_hi": 0.4}


def variants() -> dict[str, tuple[dict[str, Event], dict[str, Any]]]:
    """Name -> (events, more fields of the task)."""
    inertial = {
        "mass": Event(randomize.body_mass, body="base_link", lo=0.9, hi=1.2),
        "com": Event(randomize.body_com, body="base_link", x=0.03, y=0.02, z=0.02),
        "inertia": Event(randomize.body_inertia, body="FL_thigh", lo=0.8, hi=1.25),
        "armature": Event(randomize.joint_armature, lo=0.8, hi=1.3),
    }
    contacts = {
        "solref": Event(randomize.foot_solref, time_lo=0.014, time_hi=0.03, damping_lo=0.8, damping_hi=1.2),
        "solimp": Event(
            randomize.foot_solimp,
            dmin_lo=0.85,
            dmin_hi=0.92,
            dmax_lo=0.93,
            dmax_hi=0.98,
            width_lo=0.0008,
            width_hi=0.002,
        ),
    }
    joints = {
        "damping": Event(randomize.joint_damping, lo=0.7, hi=1.4),
        "dry": Event(randomize.joint_friction, lo=0.5, hi=1.5),
    }
    wrench = {"wrench": Event(randomize.wrench, mode="interval", interval_s=(3.0, 6.0), body="base_link", **WRENCH)}
    pushed = {"push": Event(events.push, mode="interval", interval_s=(6.0, 10.0), xy=0.5, yaw=0.3)}
    gravity = {"gravity": Event(randomize.gravity, lo=0.95, hi=1.05)}
    gains = {"gains": Event(randomize.motor_gains, kp_lo=0.9, kp_hi=1.1, kd_lo=0.8, kd_hi=1.2)}
    heading = {"commands": {"velocity": Command(commands.heading_velocity, resample_s=(4.0, 8.0), **RANGES, **HEADING)}}
    growing_range = {"curricula": {"range": Curriculum(curricula.command_range, threshold=0.7, step=0.1, std=0.5)}}
    everything = inertial | contacts | joints | wrench | pushed | gravity | gains
    return {
        "nothing (again)": ({}, {}),
        "push": (pushed, {}),
        "masses, centers of mass, inertias, armature": (inertial, {}),
        "contacts": (contacts, {}),
        "joints": (joints, {}),
        "gravity": (gravity, {}),
        "gains": (gains, {}),
        "wrench": (wrench, {}),
        "heading command, command range": ({}, heading | growing_range),
        "all of it": (everything, heading | growing_range),
    }


def make(worlds: int, drawn: dict[str, Event], fields: dict[str, Any]) -> Env:
    """An environment of go2_flat with the randomization ``drawn``, its worlds at random ages."""
    task = copy.copy(get_task("go2_flat"))
    task.events = {name: task.events[name] for name in ("base", "joints", "friction")} | drawn
    for name, value in fields.items():
        setattr(task, name, value)
    env = make_env(task, num_envs=worlds, engine="mujoco", num_threads=1)
    ages = torch.randint(0, env.max_episode_length, (worlds,), generator=torch.Generator().manual_seed(0))
    env.episode_length_buf = ages.to(env.episode_length_buf.dtype)
    return env


def timed(env: Env, steps: int) -> float:
    """Processor seconds of a control step."""
    actions = torch.zeros(env.num_envs, env.num_actions)
    start = time.process_time()
    for _ in range(steps):
        env.step(actions)
    return (time.process_time() - start) / steps


def without_physics(env: Env, steps: int) -> float:
    """Processor seconds of a control step in which the robots stand where they are."""
    step, env.engine.step = env.engine.step, lambda substeps: None
    seconds = timed(env, steps)
    env.engine.step = step
    return seconds


def bare(env: Env, steps: int) -> float:
    """Processor seconds of the physics of a control step, from the standing pose, every field at its nominal value."""
    for field in env.only._model_fields:
        values = env.engine.batch.expand(field)
        holder = env.scene.model.opt if field.startswith("opt.") else env.scene.model
        values[...] = getattr(holder, field.rpartition(".")[2])
    env.engine.batch.set_const()
    env.engine.batch.reset()
    env.engine.batch.qpos[...] = env.scene.default_qpos
    env.engine.batch.ctrl[...] = env.scene.robot.default_pos()
    start = time.process_time()
    for _ in range(steps):
        env.engine.batch.step(nstep=env.cfg.sim.decimation)
    return (time.process_time() - start) / steps


def main(arguments: list[str]) -> None:
    """Print the tables."""
    options = read_words(arguments, {"worlds": "256", "rounds": "15"}, whole=("worlds", "rounds"))
    worlds, rounds = int(options["worlds"]), int(options["rounds"])
    plain = make(worlds, {}, {})
    envs = {"nothing": plain} | {name: make(worlds, *parts) for name, parts in variants().items()}
    whole = np.median([timed(plain, STEPS) for _ in range(rounds)])
    times = in_turn(envs, lambda: (without_physics(env, 5 * STEPS) for env in envs.values()), rounds, warm_up=0)
    print(f"a control step: {1e6 * whole / worlds:.1f} us a world, {worlds} worlds, one thread")
    for name, values in times.items():
        share = np.median(np.array(values) - np.array(times["nothing"])) / whole
        print(f"{name}: {100 * share:+.2f} % of a step" if name != "nothing" else "only go2_flat's reset events: 0")
    pairs = [(bare(plain, STEPS), bare(envs["all of it"], STEPS)) for _ in range(rounds)]
    share = np.median([with_fields / without for without, with_fields in pairs]) - 1
    print(f"bare physics with every field per world: {100 * share:+.1f} %")
    batch, ids, spent = envs["all of it"].engine.batch, np.arange(min(16, worlds)), []
    for _ in range(rounds):
        start = time.process_time()
        batch.set_const(ids)
        spent.append((time.process_time() - start) / len(ids))
    print(f"constants recomputed: {1e6 * np.median(spent):.0f} us a world that was reset")


if __name__ == "__main__":
    run_script(main)
