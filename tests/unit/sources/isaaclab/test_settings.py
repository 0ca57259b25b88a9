"""Settings of an environment of Isaac Lab by dotted name, and its USD files, on configurations of the same make."""

from dataclasses import dataclass, field
from pathlib import Path

import pytest

from robot_rl.errors import UserError
from robot_rl.sources.isaaclab import settings

STORE = "https://store.example/Assets/Isaac/6.2/Isaac/IsaacLab"


@dataclass
class Spawn:
    usd_path: str


@dataclass
class Part:
    spawn: Spawn
    arrow_visualizer_cfg: Spawn = field(default_factory=lambda: Spawn(f"{STORE}/Props/arrow_x.usd"))


@dataclass
class Term:
    weight: float = 1.0
    params: dict = field(default_factory=lambda: {"range": {"x": (0.0, 1.0)}})


@dataclass
class Scene:
    robot: Part = field(default_factory=lambda: Part(Spawn(f"{STORE}/Robots/Classic/Cartpole/cartpole.usd")))
    ground: Part = field(default_factory=lambda: Part(Spawn(f"{STORE}/Environments/Grid/v1/default_ground_plane.usda")))
    num_envs: int = 4


@dataclass
class Cfg:
    scene: Scene = field(default_factory=Scene)
    rewards: dict = field(default_factory=lambda: {"alive": Term()})
    decimation: int = 2
    episode_length_s: float = 5


class Grandchild(Cfg):
    episode_length_s = 7


def test_a_setting_is_found_and_set_through_dataclasses_and_dicts():
    cfg = Cfg()
    assert settings.find(cfg, "rewards.alive.params.range.x")[2] == (0.0, 1.0)
    settings.put(cfg, "rewards.alive.weight", 2.5)
    settings.put(cfg, "rewards.alive.params.range.x", (-1.0, 1.0))
    assert cfg.rewards["alive"] == Term(2.5, {"range": {"x": (-1.0, 1.0)}})
    settings.put(cfg, "rewards.alive", None)
    assert cfg.rewards == {"alive": None}


def test_a_whole_number_may_stand_where_a_fraction_is_meant():
    for cfg in (Cfg(), Grandchild()):
        assert isinstance(settings.model(cfg, "episode_length_s"), float)
        assert type(settings.model(cfg, "decimation")) is int
        assert type(settings.model(cfg, "scene.num_envs")) is int
    cfg.rewards["alive"].params["steps"] = 3
    assert isinstance(settings.model(cfg, "rewards.alive.params.steps"), float)


@pytest.mark.parametrize(
    ("path", "line"),
    [
        ("decimatoin", "unknown key 'env.decimatoin': env has no 'decimatoin'; did you mean 'decimation'?"),
        ("rewards.alive.wait", "unknown key 'env.rewards.alive.wait': env.rewards.alive has no 'wait'"),
        ("decimation.x", "unknown key 'env.decimation.x': env.decimation has no 'x'"),
    ],
)
def test_an_unknown_setting_is_one_line(path, line):
    with pytest.raises(UserError) as error:
        settings.find(Cfg(), path)
    assert str(error.value).startswith(line)


def test_a_group_is_not_set_to_a_value():
    with pytest.raises(UserError, match=r"env\.rewards\.alive=3: is a group; set one of weight, params, or null"):
        settings.put(Cfg(), "rewards.alive", 3)


def test_files_come_from_the_folder_by_as_much_of_their_path_as_is_there(tmp_path):
    whole = tmp_path / "IsaacLab" / "Robots" / "Classic" / "Cartpole" / "cartpole.usd"
    whole.parent.mkdir(parents=True)
    short = tmp_path / "cartpole.usda"
    short.write_text("short")
    path = f"{STORE}/Robots/Classic/Cartpole/cartpole.usd"
    assert settings.find_file(path, tmp_path) == short.resolve()
    whole.write_text("whole")
    assert settings.find_file(path, tmp_path) == whole.resolve()
    assert settings.find_file(f"{STORE}/Robots/other.usd", tmp_path) is None


def test_a_scene_is_pointed_to_local_files_and_to_our_ground(tmp_path):
    cfg = Cfg()
    (tmp_path / "cartpole.usdc").write_text("")
    settings.localize(cfg, tmp_path, lambda path: False, "isaac/X")
    assert cfg.scene.robot.spawn.usd_path == str((tmp_path / "cartpole.usdc").resolve())
    assert Path(cfg.scene.ground.spawn.usd_path) == settings.OWN_ASSETS / "default_ground_plane.usda"


def test_what_the_store_has_stays_there():
    cfg = Cfg()
    settings.localize(cfg, None, lambda path: True, "isaac/X")
    assert cfg.scene.robot.spawn.usd_path.startswith(STORE)
    assert cfg.scene.ground.spawn.usd_path.startswith(STORE)


def test_a_file_that_is_not_to_be_had_is_named_with_the_way_out(tmp_path):
    with pytest.raises(UserError) as error:
        settings.localize(Cfg(), None, lambda path: False, "isaac/X")
    line = str(error.value)
    assert f"{STORE}/Robots/Classic/Cartpole/cartpole.usd is not available here" in line
    assert "put cartpole.usd into a folder and give assets=<folder>, or assets=own" in line
    with pytest.raises(UserError, match=f"nor in assets={tmp_path}"):
        settings.localize(Cfg(), tmp_path, lambda path: False, "isaac/X")


@pytest.mark.parametrize(
    ("value", "shown"), [((1, 2.5), [1, 2.5]), ("word", "word"), (None, None), (True, True), (Term(), None), ({}, None)]
)
def test_values_as_yaml_holds_them(value, shown):
    assert settings.plain(value) == shown
