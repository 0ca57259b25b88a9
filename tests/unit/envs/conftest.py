"""Environments with a puppet's physics: each step sets given values instead of an engine's results.

What the environment makes of a state (derived fields, terms, observations, bookkeeping) is then checked against figures
worked out by hand or in NumPy, without a simulator in between.
"""

import importlib
import pkgutil
import zlib
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from robot_rl_assets.registry import get_robot
from robot_rl_envs import mdp
from robot_rl_envs.make import make_env
from robot_rl_envs.mdp import commands, events, observations, rewards, terminations
from robot_rl_envs.task import Actions, Command, Event, Observation, ObservationGroup, Reward, Sim, Task, Termination
from robot_rl_envs.terms.declare import FIXED_ARGUMENTS, TermInfo

SLIDER, HINGE = 0, 1


def terms_of(kind):
    """Every term of a kind in the library: name -> function."""
    found = {}
    for module in pkgutil.iter_modules(mdp.__path__):
        for name, value in vars(importlib.import_module(f"{mdp.__name__}.{module.name}")).items():
            info = getattr(value, "term_info", None)
            if isinstance(info, TermInfo) and info.kind == kind:
                found[name] = value
    return found


OWN_FILE = {name: f"test_terms_{name}" for name in ("gymnasium", "motions", "objects", "sensing", "team")}
OWN_FILE["carrying"] = OWN_FILE["team"]
"""Modules of terms with a test file of their own (of teams: in tests/unit/team); the others share one for each kind."""


def _home(module):
    """The module of mdp that has a term, also if it is a sensor's."""
    return "sensing" if ".sensing." in module else module.rpartition(".")[2]


def pytest_generate_tests(metafunc):
    """A test that takes `reward_term` runs once for every reward term in the library, and so on for each kind."""
    here = metafunc.module.__name__.rpartition(".")[2]
    for kind in FIXED_ARGUMENTS:
        if f"{kind}_term" in metafunc.fixturenames:
            homes = {name: _home(fn.func.__module__) for name, fn in terms_of(kind).items()}
            shared = None if here in OWN_FILE.values() else here
            mine = [name for name, home in homes.items() if OWN_FILE.get(home, shared) == here]
            metafunc.parametrize(f"{kind}_term", sorted(mine))


def pcg(state):
    """One round of the PCG hash (RXS-M-XS, 32 bits): O'Neill 2014."""
    state = np.uint64(state) & np.uint64(0xFFFFFFFF)
    word = (state * np.uint64(747796405) + np.uint64(2891336453)) & np.uint64(0xFFFFFFFF)
    word = (((word >> ((word >> np.uint64(28)) + np.uint64(4))) ^ word) * np.uint64(277803737)) & np.uint64(0xFFFFFFFF)
    return (word >> np.uint64(22)) ^ word


class Stream:
    """The draws of one world, step and term: a hash of seed, term's name, world and counter, then one round a draw."""

    def __init__(self, seed, path, world, counter):
        salt = zlib.crc32(path.encode()) & 0xFFFFFF
        lane = pcg(np.uint64(seed + salt) + pcg(world))
        self.state = pcg(lane + pcg(int(counter)))

    def uniform(self, lo=-1.0, hi=1.0):
        self.state = pcg(self.state)
        return np.float64(lo) + (hi - lo) * float(self.state >> np.uint64(8)) / 2**24


@pytest.fixture(scope="session")
def stream():
    """The class of random streams: stream(seed, path, world, counter).uniform(lo, hi) draws."""
    return Stream


class Puppet:
    """Wraps an environment on the CPU and moves its worlds as requested."""

    def __init__(self, task, num_envs=2, **options):
        self.env = make_env(task, num_envs=num_envs, engine="mujoco", num_threads=1, **options)
        self.state = self.env.state
        self.next = {}
        self.env.engine.step = self._move

    def _move(self, substeps):
        assert substeps == self.env.cfg.sim.decimation
        for name, value in self.next.items():
            self.put(name, value)

    def put(self, name, value):
        """Write one field of the state."""
        view = getattr(self.state, name)
        view.copy_(torch.as_tensor(np.asarray(value), dtype=view.dtype).expand(view.shape))

    def step(self, actions=None, **fields):
        """One control step that ends in the given fields (qpos, qvel, sensordata, actuator_force)."""
        self.next = fields
        if actions is None:
            actions = torch.zeros(self.env.num_envs, self.env.num_actions)
        return self.env.step(torch.as_tensor(actions, dtype=torch.float32))

    def snapshot(self):
        """All fields of the state, copied, in float64."""
        copies = {name: getattr(self.state, name).numpy().astype(np.float64) for name in dir(self.state)}
        return SimpleNamespace(**copies, step_dt=self.env.step_dt, scene=self.env.scene)


@pytest.fixture(scope="session")
def puppet():
    """The class of puppets: puppet(task, num_envs=2, seed=0)."""
    return Puppet


@pytest.fixture(scope="session")
def library():
    """terms_of(kind): the library's terms by name."""
    return terms_of


@pytest.fixture
def cart_task():
    """make(**fields): a cart-pole task of few terms; fields of Task replace its own."""

    def make(**fields):
        sensed = {
            "angle": Observation(observations.joint_pos_rel),
            "speed": Observation(observations.joint_vel),
        }
        own = {
            "name": "cart",
            "robot": get_robot("cartpole"),
            "sim": Sim(timestep=0.05, decimation=2),
            "episode_length_s": 1.0,
            "actions": Actions(kind="effort"),
            "observations": {"actor": ObservationGroup(terms=sensed)},
            "rewards": {"alive": Reward(rewards.alive, weight=1.0)},
            "terminations": {"off_rail": Termination(terminations.joint_beyond, joint=SLIDER, limit=1.0)},
            "events": {"cart": Event(events.reset_joint_to, joint=SLIDER, centre=0.25, spread=0.0, velocity=0.0)},
        }
        return Task(**(own | fields))

    return make


def make_go2_task():
    def make(**fields):
        own = {
            "name": "stand",
            "robot": get_robot("unitree_go2"),
            "sim": Sim(timestep=0.005, decimation=4),
            "observations": {
                "actor": ObservationGroup(terms={"joint_pos": Observation(observations.joint_pos_rel)}),
                "critic": ObservationGroup(
                    terms={
                        "contact": Observation(observations.foot_contact),
                        "lin_vel": Observation(observations.base_lin_vel),
                    }
                ),
            },
            "rewards": {"alive": Reward(rewards.alive, weight=1.0)},
        }
        return Task(**(own | fields))

    return make


@pytest.fixture
def go2_task():
    """make(**fields): a Go2 on the floor, by default without events, commands and noise."""
    return make_go2_task()


@pytest.fixture(scope="session")
def go2_task_once():
    """The same for fixtures that live longer than a test."""
    return make_go2_task()


@pytest.fixture
def busy_task(go2_task):
    """A Go2 with everything that is drawn at random: noise, commands, resets, pushes, every randomized model field."""
    sensed = {
        "gyro": Observation(observations.base_ang_vel, noise=0.2),
        "command": Observation(observations.velocity_command),
        "joint_pos": Observation(observations.joint_pos_rel, noise=0.01, history=2),
        "joint_vel": Observation(observations.joint_vel, noise=1.0),
    }
    ranges = {"vx_lo": -1.0, "vx_hi": 1.5, "vy_lo": -0.6, "vy_hi": 0.6, "yaw_lo": -1.0, "yaw_hi": 1.0, "standing": 0.1}
    drawn = {
        "mass": Event(events.base_mass, mode="startup", body=1, mass=1.0, com=0.02),
        "base": Event(events.reset_base, xy=0.5, yaw=3.14, velocity=0.2),
        "joints": Event(events.reset_joints, position=0.1, velocity=0.2),
        "friction": Event(events.foot_friction, lo=0.4, hi=1.2),
        "motors": Event(events.motor_strength, lo=0.9, hi=1.1),
        "push": Event(events.push, mode="interval", interval_s=(0.1, 0.6), xy=0.5, yaw=0.3),
    }
    return go2_task(
        name="busy",
        episode_length_s=0.6,
        observations={"actor": ObservationGroup(terms=sensed)},
        rewards={
            "track": Reward(rewards.track_lin_vel, weight=1.0, std=0.5),
            "torque": Reward(rewards.joint_torque, weight=-1e-4),
        },
        terminations={"low": Termination(terminations.base_below, height=0.2)},
        commands={"velocity": Command(commands.uniform_velocity, resample_s=(0.1, 0.5), **ranges)},
        events=drawn,
    )


def random_go2(seed, num_envs):
    """Random states of a Go2 as an engine would leave them: any attitude, joints around and beyond their limits."""
    rng = np.random.default_rng(seed)
    quat = rng.normal(size=(num_envs, 4))
    quat /= np.linalg.norm(quat, axis=1, keepdims=True)
    pos = rng.uniform([-2.0, -2.0, 0.05], [2.0, 2.0, 0.5], size=(num_envs, 3))
    joints = np.tile([0.0, 0.9, -1.8], 4) + rng.uniform(-1.5, 1.5, size=(num_envs, 12))
    touching = rng.random((num_envs, 4, 1)) < 0.5
    sensors = np.concatenate([touching, touching * rng.uniform(2.0, 60.0, size=(num_envs, 4, 3))], axis=2)
    return {
        "qpos": np.concatenate([pos, quat, joints], axis=1).astype(np.float32),
        "qvel": rng.normal(size=(num_envs, 18)).astype(np.float32),
        "sensordata": sensors.reshape(num_envs, 16).astype(np.float32),
        "actuator_force": rng.uniform(-20.0, 20.0, size=(num_envs, 12)).astype(np.float32),
    }


@pytest.fixture(scope="session")
def go2_states():
    """random_go2(seed, num_envs)."""
    return random_go2
