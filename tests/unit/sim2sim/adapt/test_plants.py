"""Simulated robots that differ from the trained one."""

import mujoco
import numpy as np
import pytest
from robot_rl_envs.make import make_env
from robot_rl_tasks.registry import get_task

from robot_rl.errors import UserError
from robot_rl.sim2sim.adapt.plants import BOX, KINDS, PlantCfg, make_plant


@pytest.mark.long
def test_a_payload_is_a_body_of_its_own(tmp_path):
    """The compiled scene has its mass, where it is, and a box's inertia m / 3 (a^2 + b^2) of half sides a, b."""
    task, words = make_plant(get_task("go2_flat"), PlantCfg(name="heavier", payload=4.0), tmp_path)
    assert words == "it carries 4 kg at 0.15, 0, 0.05 m of its base"
    env = make_env(task, num_envs=1, device="cpu", seed=1, num_threads=1)
    plain = make_env(get_task("go2_flat"), num_envs=1, device="cpu", seed=1, num_threads=1)
    try:
        model, nominal = env.scene.model, plain.scene.model
        body = mujoco.mj_name2id(model, mujoco.mjtObj.mjOBJ_BODY, "payload")
        assert model.body_mass[body] == pytest.approx(4.0)
        assert model.body_pos[body] == pytest.approx([0.15, 0.0, 0.05])
        assert model.body_subtreemass[0] == pytest.approx(nominal.body_subtreemass[0] + 4.0)
        a, b, c = BOX
        inertia = np.sort(4.0 / 3.0 * np.array([b * b + c * c, a * a + c * c, a * a + b * b]))
        assert np.sort(model.body_inertia[body]) == pytest.approx(inertia, rel=1e-4)
        assert model.nu == nominal.nu
        assert env.get_observations()["actor"].shape == plain.get_observations()["actor"].shape
    finally:
        env.close()
        plain.close()


def test_a_payload_is_a_third_of_the_robot_by_default(tmp_path):
    assert "5.1 kg" in make_plant(get_task("go2_flat"), PlantCfg(name="heavier"), tmp_path)[1]


@pytest.mark.parametrize("name", ["weaker", "slippery"])
def test_a_plant_takes_the_place_of_its_randomization(name, tmp_path):
    task, _ = make_plant(get_task("go2_flat"), PlantCfg(name=name), tmp_path)
    own = task.events["plant"]
    assert own.params["lo"] == own.params["hi"]
    assert [one.info.name for one in task.events.values()].count(own.info.name) == 1


def test_the_nominal_plant_is_the_task_without_pushes(tmp_path):
    task = get_task("go2_flat")
    plant, _ = make_plant(task, PlantCfg(), tmp_path)
    assert plant.commands["velocity"].params["vx_hi"] == pytest.approx(0.6 * task.commands["velocity"].params["vx_hi"])
    assert plant.commands["velocity"].params["standing"] == task.commands["velocity"].params["standing"]
    assert plant.events == {name: one for name, one in task.events.items() if name != "push"}
    assert set(KINDS) == {"nominal", "heavier", "weaker", "slippery", "motors"}


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"name": "heavyer"}, "plant=heavyer: no such plant; did you mean 'heavier'"),
        ({"name": "weaker", "payload": 2.0}, "payload=2: is for plant=heavier"),
        ({"name": "heavier", "payload": -1.0}, r"payload=-1: must be in \[0, 1000\] kg"),
        ({"name": "heavier", "payload_at": (3.0, 0.0, 0.0)}, "must be within 2 m of the base"),
        ({"name": "heavier", "payload_at": (float("nan"), 0.0, 0.0)}, "must be within 2 m of the base"),
        ({"name": "weaker", "motors_seed": 1}, "motors_seed=1: is for plant=motors"),
        ({"speed": 1.5}, "speed=1.5: must be above 0 and at most 1"),
    ],
)
def test_bad_plants_are_refused(given, words):
    with pytest.raises(UserError, match=words):
        PlantCfg(**given)


def test_an_arm_carries_nothing(tmp_path):
    with pytest.raises(UserError, match="task=panda_reach is bolted down, it carries nothing"):
        make_plant(get_task("panda_reach"), PlantCfg(name="heavier"), tmp_path)
