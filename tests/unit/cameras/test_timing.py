"""When an image is taken and when it is delivered: rates, delays, losses, resets, and going on from a checkpoint.

The carrier hangs over level ground, one centimeter higher each step: the depth in the image determines its step.
"""

import numpy as np
import pytest

OVER_GROUND = {"pos": (0.0, -4.0, 0.0), "width": 2, "height": 2}


def run(r, steps, resets=None, start=0):
    """Steps of the delivered images: at step t, the step in which each world's image was taken."""
    delivered = []
    for t in range(start, start + steps):
        r.lift(1.0 + 0.01 * t)
        image = r.step(reset=(resets or {}).get(t, ()))
        delivered.append(np.round((8 * image[:, 0, 0, 0] - 1.0) / 0.01).astype(int))
    return np.array(delivered)


def test_without_faults_each_step_has_its_own_image(rig):
    delivered = run(rig(num_envs=2, **OVER_GROUND), 5)
    np.testing.assert_array_equal(delivered, np.repeat(np.arange(5)[:, None], 2, axis=1))


def test_a_slow_camera_holds_its_image_and_worlds_take_turns(rig):
    delivered = run(rig(num_envs=64, every=4, **OVER_GROUND), 20)
    assert (delivered[0] == 0).all()
    taken = delivered == np.arange(20)[:, None]
    phases = [int(np.flatnonzero(taken[4:8, world])[0]) for world in range(64)]
    assert set(phases) == {0, 1, 2, 3}
    for world, phase in enumerate(phases):
        np.testing.assert_array_equal(np.flatnonzero(taken[4:, world]) % 4, phase)
        held = delivered[4:, world]
        assert ((np.arange(4, 20) - held) < 4).all()


@pytest.mark.parametrize("every", [1, 2])
def test_an_image_is_delivered_after_its_delay(rig, every):
    delivered = run(rig(num_envs=32, every=every, delay_steps=(3, 3), **OVER_GROUND), 16)
    assert (delivered[:3] == 0).all()
    age = np.arange(16)[:, None] - delivered
    assert (age[4 + every :] >= 3).all()
    assert (age[4 + every :] <= 3 + every - 1).all()
    if every == 1:
        np.testing.assert_array_equal(delivered[3:, 0], np.arange(13))


def test_each_world_draws_a_new_delay_at_a_reset(rig):
    r = rig(num_envs=64, delay_steps=(0, 3), **OVER_GROUND)
    delivered = run(r, 12)
    age = 11 - delivered[-1]
    assert set(age) == {0, 1, 2, 3}
    np.testing.assert_array_equal(10 - delivered[-2], age)
    again = 23 - run(r, 12, {12: range(64)}, start=12)[-1]
    assert set(again) == {0, 1, 2, 3}
    assert (again != age).any()


def test_lost_images_leave_the_last_one(rig):
    delivered = run(rig(num_envs=16, dropout=(0.3, 0.3), **OVER_GROUND), 60)
    fresh = (delivered == np.arange(60)[:, None])[1:]
    assert 0.64 < fresh.mean() < 0.76
    assert (np.diff(delivered, axis=0) >= 0).all()
    blind = run(rig(num_envs=4, dropout=(1.0, 1.0), **OVER_GROUND), 6)
    assert (blind == 0).all()


def test_a_reset_world_shows_where_it_is_now_and_others_go_on(rig):
    faults = {"every": 5, "delay_steps": (2, 2), "dropout": (0.2, 0.2)}
    plain = run(rig(num_envs=3, seed=1, **faults, **OVER_GROUND), 20)
    delivered = run(rig(num_envs=3, seed=1, **faults, **OVER_GROUND), 20, {7: [1]})
    assert delivered[7, 1] == 7
    assert (delivered[7:9, 1] == 7).all()
    np.testing.assert_array_equal(delivered[:, [0, 2]], plain[:, [0, 2]])


def test_a_restored_sensor_goes_on_with_the_same_bits(rig):
    faults = {"every": 2, "delay_steps": (0, 4), "dropout": (0.0, 0.5), "pos_jitter": 0.01, "noise": 0.02}
    one, other = (rig(num_envs=6, seed=5, num_threads=k, **faults, **OVER_GROUND) for k in (1, 2))
    for _ in range(7):
        one.step()
    other.first = False
    other.step_count[:], other.counter[:] = one.step_count, one.counter
    other.sensor.load_state_dict(one.sensor.state_dict())
    np.testing.assert_array_equal(other.sensor.out.numpy(), one.sensor.out.numpy())
    for t in range(6):
        for r in (one, other):
            r.lift(1.0 + 0.02 * t)
        np.testing.assert_array_equal(other.step(reset=[t % 6]), one.step(reset=[t % 6]))


def test_two_groups_of_one_camera_are_off_alike_and_noisy_each_in_its_own_way(rig):
    faults = {"pos_jitter": 0.1, "delay_steps": (0, 3), "every": 3, "seed": 2, "num_envs": 8}
    one, other = (rig(group=name, **faults, **OVER_GROUND) for name in ("one", "other"))
    np.testing.assert_array_equal(run(one, 6), run(other, 6))
    one, other = (rig(group=name, noise=0.1, **faults, **OVER_GROUND) for name in ("one", "other"))
    assert (one.step() != other.step()).mean() > 0.9
