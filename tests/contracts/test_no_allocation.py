"""A step in its steady state allocates no array on the CPU engine: not in NumPy, not in torch, not in Warp."""

import gc
import tracemalloc
from contextlib import contextmanager

import numpy as np
import pytest
import torch
import warp as wp
from robot_rl_envs.engine import DIRTY_STATE, DIRTY_VELOCITY
from robot_rl_envs.engines.rows import RowWriter
from robot_rl_envs.launch import Stage
from robot_rl_envs.make import make_env
from robot_rl_tasks.registry import get_task
from torch.profiler import ProfilerActivity, profile

from tests.covering import tasks

WORLDS = 4096  # or rows of a team; the smallest array over them, a mask of bytes, is 4 KiB
PYTHON_KB = 3.0  # Python's own objects of one step: tuples, dictionaries, arguments of launches
WARM_UP = 2


# Images of so many worlds would take minutes; their buffers are made once, by the camera.
@pytest.fixture(scope="module", params=tasks(lambda task: not task.images, ("go2_flat",)))
def env(request):
    task = get_task(request.param)
    worlds = WORLDS // max(len(task.robots), 1)
    env = make_env(task, num_envs=worlds, device="cpu", engine="mujoco", seed=3)
    for _ in range(WARM_UP):
        env.step(torch.zeros(WORLDS, env.num_actions))
    gc.collect()
    gc.freeze()  # What is there stays: the collections of the tests look only at what they made.
    yield env
    gc.unfreeze()
    env.close()


def rows_of(env):
    """The environment with a state for each row: of a team its only crew's."""
    return env.only


@contextmanager
def physics_left_out(env):
    """The step without its physics: the stages around it are what may allocate, and they take a moment."""
    env.engine.batch.step = lambda nstep: None
    yield
    del env.engine.batch.step


def steps(env, count, resets):
    """`count` steps; in every third the episodes of some worlds end, in the last of all, where `resets`."""
    actions = torch.zeros(WORLDS, env.num_actions)
    ends = torch.zeros(WORLDS, dtype=torch.int32)
    ends[::7] = env.max_episode_length
    state = rows_of(env).state

    def run():
        for k in range(count):
            if resets and k % 3 == 0:
                state.episode_length.add_(ends)
            if resets and k == count - 1:
                state.episode_length.fill_(env.max_episode_length)
            env.step(actions)

    return run


def numpy_and_python_kb(run, count=1):
    """The most memory that Python and NumPy held at once in a call beyond what they held before it, of `count` [kB].

    Of many equal calls the worst is left out: a thread of an earlier test may have woken in it.
    """
    held = []
    gc.collect()
    gc.disable()
    tracemalloc.start()
    try:
        for _ in range(count):
            tracemalloc.reset_peak()
            before = tracemalloc.get_traced_memory()[0]
            run()
            held.append(tracemalloc.get_traced_memory()[1] - before)
        return sorted(held)[-2 if count > 1 else -1] / 1000
    finally:
        tracemalloc.stop()
        gc.enable()


def torch_allocations(run):
    """What torch's CPU allocator handed out during `run`: (operator, bytes)."""
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiler:
        run()
    return [(event.name, event.cpu_memory_usage) for event in profiler.events() if event.cpu_memory_usage > 0]


def warp_allocations(run, monkeypatch):
    """What Warp's CPU allocator handed out during `run` [bytes]."""
    allocator, sizes = type(wp.get_device("cpu").get_allocator()), []
    allocate = allocator.allocate

    def counted(self, size):
        sizes.append(size)
        return allocate(self, size)

    with monkeypatch.context() as patch:
        patch.setattr(allocator, "allocate", counted)
        run()
    return sizes


@pytest.mark.parametrize("resets", [False, True], ids=["steady", "worlds reset"])
def test_a_step_allocates_no_tensor_and_no_warp_array(env, resets, monkeypatch):
    with physics_left_out(env):
        steps(env, 3, resets)()
        assert torch_allocations(steps(env, 7, resets)) == []
        assert warp_allocations(steps(env, 7, resets), monkeypatch) == []


@pytest.mark.parametrize("bits", [0, 1, 2, 3, 4, 7], ids=lambda bits: f"dirty {bits}")
def test_a_step_allocates_no_numpy_array(env, bits, monkeypatch):
    """Each launch of a chunk leaves 150 bytes of Python's, more than a mask over its worlds: launches are left out."""
    actions, state = torch.zeros(WORLDS, env.num_actions), rows_of(env).state

    def run():
        state.dirty[::3] = bits
        env.step(actions)

    monkeypatch.setattr(Stage, "launch", lambda self: None)
    monkeypatch.setattr(wp.Launch, "launch", lambda self: None)
    with physics_left_out(env):
        run()
        # MuJoCo checks the order of the worlds that it is to look at: a byte a world.
        allowed = PYTHON_KB + (1.0 + WORLDS / 1000 if rows_of(env).scene.needs_reset_forward else 0.0)
        assert numpy_and_python_kb(run, count=8) < allowed
    state.dirty.zero_()
    env.reset()


def test_physics_allocates_no_array(env):
    env.engine.step(1)
    assert numpy_and_python_kb(lambda: env.engine.step(1)) < PYTHON_KB


def test_thirty_steps_leave_nothing_behind(env):
    """What leaks does so every time: of three the best counts, a cache that an interpreter fills once is no leak."""
    left = []
    with physics_left_out(env):
        steps(env, 6, True)()
        gc.collect()
        tracemalloc.start()
        while len(left) < 3 and min(left, default=np.inf) >= 300 * PYTHON_KB:
            before = tracemalloc.get_traced_memory()[0]
            steps(env, 30, True)()
            gc.collect()
            left.append(tracemalloc.get_traced_memory()[0] - before)
        tracemalloc.stop()
    assert min(left) < 300 * PYTHON_KB


def test_the_counters_see_what_allocates(env, monkeypatch):
    assert numpy_and_python_kb(lambda: np.zeros(WORLDS, dtype=bool)) > PYTHON_KB
    assert torch_allocations(lambda: torch.zeros(WORLDS) == 0)
    assert warp_allocations(lambda: wp.zeros(WORLDS, device="cpu"), monkeypatch) == [4 * WORLDS]


def test_rows_of_touched_worlds_are_copied():
    state = np.arange(30.0).reshape(5, 6)
    untouched = state.copy()
    position, velocity = state[:, 1:3], state[:, 3:6]
    model = np.zeros((5, 2, 2))
    mirrors = [wp.array(np.full(shape, 0.1, np.float32), device="cpu") for shape in ((5, 2), (5, 3), (5, 2, 2))]
    dirty = wp.array([0, DIRTY_STATE, DIRTY_VELOCITY, DIRTY_STATE | DIRTY_VELOCITY, 4], dtype=wp.int32, device="cpu")
    rows = RowWriter(dirty)
    rows.start(DIRTY_STATE, np.full(6, -1.0), state)
    rows.copy(DIRTY_STATE, DIRTY_STATE, mirrors[0], position)
    rows.copy(DIRTY_STATE, DIRTY_STATE, mirrors[1], velocity)
    rows.copy(DIRTY_STATE | DIRTY_VELOCITY, DIRTY_VELOCITY, mirrors[1], velocity)
    rows.copy(4, 4, mirrors[2], model)
    assert rows.any() == 7
    rows.launch(rows.any() & ~4)
    tenth = float(np.float32(0.1))
    np.testing.assert_array_equal(state[[0, 4]], untouched[[0, 4]])
    np.testing.assert_array_equal(state[[1, 3]], [[-1.0] + 5 * [tenth]] * 2)
    np.testing.assert_array_equal(state[2], [*untouched[2, :3], *3 * [tenth]])
    assert not model.any()
    rows.launch(4)
    np.testing.assert_array_equal(model, np.float32(0.1) * (np.arange(5) == 4)[:, None, None] * np.ones((5, 2, 2)))
    assert rows.covers(dirty)
    assert not rows.covers(wp.clone(dirty))
    with pytest.raises(ValueError, match="not contiguous"):
        rows.copy(4, 4, mirrors[1], np.zeros((5, 6))[:, ::2])
