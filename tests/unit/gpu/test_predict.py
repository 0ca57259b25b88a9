"""Predictions: what kernels read and write, memory by two sizes, and the command."""

import json

import pytest
import torch
import warp as wp
from robot_rl_envs.make import make_env
from robot_rl_tasks.registry import get_task

from robot_rl.cli.main import main
from robot_rl.errors import UserError
from robot_rl.experiment.settings import resolve_for_gpu
from robot_rl.gpu.access import ROW, find_accesses
from robot_rl.gpu.cards import CARDS, get_card
from robot_rl.gpu.chips import CHIPS
from robot_rl.gpu.footprint import measure_footprint
from robot_rl.gpu.predict import KERNEL_S, Prediction
from robot_rl.gpu.traffic import WORLDS, Traffic, Use, measure_traffic
from robot_rl.learn.runner import make_runner


@wp.struct
class Two:
    """Two arrays."""

    a: wp.array2d(dtype=wp.float32)
    b: wp.array2d(dtype=wp.float32)


@wp.func
def total(row: wp.array2d(dtype=wp.float32), i: int) -> float:
    x = float(0.0)
    for k in range(row.shape[1]):
        x += row[i, k]
    return x


@wp.func
def store(s: Two, i: int, value: float):
    s.b[i, 0] = value
    s.b[i, 1] = value


@wp.kernel
def busy(
    s: Two,
    x: wp.array2d(dtype=wp.float32),
    y: wp.array(dtype=wp.float32),
    z: wp.array(dtype=wp.float32),
    out: wp.array(dtype=wp.float32),
    unused: wp.array(dtype=wp.float32),
    usual: wp.array(dtype=wp.float32),
    v: wp.array(dtype=wp.vec3),
    fresh: int,
):
    i = wp.tid()
    row = x[i]
    store(s, i, row[0] + row[1] + row[0] + total(row=s.a, i=i))
    for k in range(3):
        out[k] = v[i][k]
    wp.atomic_add(y, 0, 1.0)
    if fresh == 1:
        unused[i] = 1.0
    if fresh == 0:
        usual[i] = 1.0
    else:
        unused[i] = 2.0
    element = v[i]
    element[0] = 2.0
    either = wp.where(fresh == 1, z, out)
    either[i] = float(x.shape[1])
    out[i] += 1.0


def test_what_a_kernel_reads_and_writes():
    found = {path: (access.read, access.written) for path, access in find_accesses(busy).items()}
    assert found == {
        "x": (3, 0),  # the row, and two of its elements
        "s.a": (ROW, 0),
        "s.b": (0, 2),
        "y": (1, 1),
        "out": (1, 5),  # three in the loop
        "usual": (0, 1),
        "v": (3, 0),
    }


@pytest.fixture(scope="module")
def cartpole():
    """The traffic of a control step, and the environment it is of."""
    traffic, use = measure_traffic(
        lambda worlds, engine: make_env(get_task("cartpole"), num_envs=worlds, engine=engine, num_threads=1)
    )
    env = make_env(get_task("cartpole"), num_envs=2, engine="mujoco", num_threads=1)
    return {one.name: one for one in traffic}, use, env


@pytest.mark.long
def test_every_stage_once_and_the_physics_once_a_substep(cartpole):
    traffic, use, env = cartpole
    decimation = env.cfg.sim.decimation
    assert traffic["act"].launches == traffic["after_physics"].launches == traffic["observe"].launches == 1
    assert traffic["_next_position"].launches == decimation
    assert traffic["_next_position"].is_engine
    assert not traffic["act"].is_engine
    assert use == Use(contacts=0.0, rows=0.0, iterations=1.0)


def test_the_bytes_of_a_stage_are_those_of_its_arrays(cartpole):
    """`observe` writes each group's row once; `act` reads the world's action and writes it."""
    traffic, _, env = cartpole
    widths = sum(array.shape[1] for array in env._out.values())
    assert 4 * widths <= traffic["observe"].written <= 10 * widths
    read = traffic["act"].read
    assert 4 * env.num_actions <= read <= 4096
    assert all(one.read >= 0 and one.written >= 0 for one in traffic.values())
    assert sum(one.read + one.written for one in traffic.values()) < 100_000


def test_what_worlds_share_does_not_grow_with_them():
    one = Traffic("k", is_engine=True, launches=2, read=10, written=5, shared=100)
    assert one.bytes_of(1) == 115
    assert one.bytes_of(1000) == 15_100


def test_a_robot_on_its_feet_has_contacts():
    traffic, use = measure_traffic(
        lambda worlds, engine: make_env(get_task("go2_flat"), num_envs=worlds, engine=engine, num_threads=1)
    )
    assert 3.0 <= use.contacts <= 6.0
    assert use.rows >= 3 * use.contacts
    assert 1.0 <= use.iterations <= 10.0
    in_loop = next(one for one in traffic if one.name == "_linesearch_iterative_kernel")
    assert in_loop.launches == pytest.approx(3 * use.iterations)
    assert WORLDS == 67


@pytest.mark.long
def test_memory_grows_with_worlds_by_what_is_allocated():
    """The rollout alone is a lower bound; twice as many steps need more, and a wider network, too."""
    base = {"task": "cartpole", "num_envs": 64, "ppo.epochs": 2, "ppo.minibatches": 2}

    def measure(**changes):
        cfg = resolve_for_gpu(base | changes, "a test")
        found = measure_footprint(cfg.make_env, lambda env: make_runner(env, cfg.learner, seed=1))
        return found, make_runner(cfg.make_env(8), cfg.learner, seed=1).collector.rollout

    one, rollout = measure()
    tensors = [value for value in (getattr(rollout, name) for name in rollout.__slots__) if torch.is_tensor(value)]
    least = sum(tensor.numel() * tensor.element_size() for tensor in tensors if tensor.shape[1:2] == (8,)) / 8
    assert least < one.learner_bytes < 20 * least
    longer, _ = measure(num_steps=32)
    wider, _ = measure(**{"actor.hidden": [256, 256]})
    assert 1.7 < longer.learner_bytes / one.learner_bytes < 2.3
    assert wider.learner_bytes > one.learner_bytes
    assert wider.env_bytes == one.env_bytes == longer.env_bytes
    assert wider.fixed_bytes > one.fixed_bytes
    assert one.replays == 1 + 2 * 2
    assert one.graphed_kernels > 2 * one.other_kernels


def test_the_least_time_is_that_of_bytes_and_of_launches():
    card = get_card("H200")
    heavy = Traffic("heavy", is_engine=True, launches=1, read=4.8e6, written=0.0)
    light = Traffic("light", is_engine=True, launches=3, read=0.0, written=48.0)
    found = Prediction(
        card=card,
        worlds=1000,
        num_steps=4,
        traffic=[heavy, light],
        use=Use(0, 0, 1),
        footprint=measure_nothing(),
    )
    assert found.launches == 4
    assert found.moving_s == pytest.approx(1e-3 + 1e-8)
    assert found.step_s == pytest.approx(1e-3 + 3 * KERNEL_S)
    assert found.largest == int((0.95 * 141e9 - 1.5e9 - 1e6) / 3000)
    assert found.memory == pytest.approx(1.5e9 + 1e6 + 3e6)
    plain = found.as_dict()
    assert json.loads(json.dumps(plain))["steps_per_s"] == pytest.approx(1000 / found.step_s)


def measure_nothing():
    from robot_rl.gpu.footprint import Footprint

    return Footprint(env_bytes=1000, learner_bytes=2000, fixed_bytes=1e6, graphed_kernels=5, other_kernels=2, replays=1)


def test_every_card_has_a_chip_that_is_compiled_for():
    for card in CARDS.values():
        assert card.arch in CHIPS
        assert 1e11 < card.bandwidth < 1e13
        assert 1e10 < card.memory < 1e12


@pytest.mark.parametrize("name", ["h300", "", "sm_90"])
def test_a_card_that_is_not_here_is_refused(name):
    with pytest.raises(UserError, match=rf"^card={name}: no card of this name"):
        get_card(name)


@pytest.mark.long
def test_the_command_prints_and_checks(tmp_path, capsys):
    out = tmp_path / "prediction.json"
    assert (
        main(["profile", "task=cartpole", "card=thor", "check=capture", "num_envs=512", "ppo.epochs=1", f"out={out}"])
        == 0
    )
    said = capsys.readouterr().out
    for words in ("cartpole, 512 worlds on Jetson AGX Thor", "a control step: ", "kernels, all but", "memory: "):
        assert words in said
    assert "nothing found: cartpole" in said
    written = json.loads(out.read_text())
    assert written["worlds"] == 512
    assert written["measured_step_s"] is None
    assert written["largest_num_envs"] > 512
    assert {one["name"] for one in written["kernels"]} >= {"act", "after_physics", "observe"}


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (["card=h2000"], "card=h2000: no card of this name; did you mean 'h200'?"),
        (["card=h200", "device=cpu"], "device=cpu: has no effect on card=h200; leave it out"),
        (["card=h200", "learner=rsl_rl"], "learner=rsl_rl: has a loop of its own; card= looks at robot-rl's"),
    ],
)
def test_what_has_no_effect_is_refused(words, line, capsys):
    assert main(["profile", "task=cartpole", *words]) == 2
    assert line in capsys.readouterr().err
