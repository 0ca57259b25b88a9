"""robot-rl terrain."""

import numpy as np
import pytest
from robot_rl_envs.terrain import PRESETS, Stairs, TerrainCfg, build_terrain

from robot_rl.cli.terrain import facts


def test_every_terrain_is_listed(run):
    for words in (("terrain",), ("terrain", "list")):
        code, out, _ = run(*words)
        assert code == 0
        for name, (text, _) in PRESETS.items():
            assert f"\n  {name} " in out
            assert text in out


def test_stairs_are_drawn_and_described(run, in_tmp, gl):
    from PIL import Image

    code, out, err = run("terrain", "stairs", "rows=2", "size=400")
    assert code == 0, err
    assert "stairs_up    1 column: proportion 1, platform 2, rim 0.5, up true, step_height 0.03 to 0.18" in out
    assert "2 rows x 2 columns of 8 m, difficulty 0 to 1 rising by row, seed 0" in out
    assert "height field of 260 x 260 cells of 0.1 m, 26 x 26 m, border 5 m" in out
    assert not list(in_tmp.iterdir())
    written = out.splitlines()[-1]
    assert written.endswith("/terrain_stairs.png")
    image = np.asarray(Image.open(written).convert("RGB")).astype(int)
    assert image.shape == (200, 400, 3)
    # Down is blue and up is brown, on the map as in the view.
    blue, brown = image[..., 2] - image[..., 0] > 40, image[..., 0] - image[..., 2] > 40
    for part in (slice(None, 168), slice(168, None)):
        assert blue[:, part].mean() > 0.01
        assert brown[:, part].mean() > 0.01


def test_an_image_of_boxes_is_similar_to_that_of_the_height_field(run, in_tmp, gl):
    from PIL import Image

    images = []
    for form in ("hfield", "boxes"):
        out = f"{form}.png"
        code, text, err = run("terrain", "gaps", "rows=1", "size=300", f"form={form}", "robot=none", f"out={out}")
        assert code == 0, err
        images.append(np.asarray(Image.open(out).convert("RGB")).astype(float))
    assert "boxes, from a map of" in text
    assert np.abs(images[0] - images[1]).mean() < 25


def test_numbers_are_set_by_name(run, in_tmp, gl):
    words = ("rows=1", "seed=3", "terrain.tiles.stairs_up.tread=0.5", "terrain.num_columns=3", "size=200", "column=2")
    code, out, err = run("terrain", "stairs_up", *words)
    assert code == 0, err
    assert "3 columns: proportion 1, platform 2, rim 0.5, up true, step_height 0.03 to 0.18, tread 0.5" in out
    assert "1 rows x 3 columns of 8 m" in out
    assert "seed 3" in out


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (("stiars",), "name=stiars: no terrain or task of this name; did you mean 'stairs'?"),
        (("go2_flat",), "name=go2_flat: this task's ground is an endless plane"),
        (("stairs", "robot=go2"), "robot"),
        (("stairs", "robot=cartpole"), "terrain: robot 'cartpole' has a fixed base"),
        (("stairs", "rows=-2"), "rows=-2: must be at least 1"),
        (("stairs", "size=10"), "size=10: must be in [200, 8192]"),
        (("stairs", "level=9"), "level=9: must be in [0, 4]"),
        (("stairs", "column=-2"), "column=-2: must be at least 0"),
        (("stairs", "distance=-1"), "distance=-1.0: must be in [0, 1000]"),
        (("stairs", "form=mesh"), "terrain.form='mesh': must be one of hfield, boxes"),
        (
            ("waves", "form=boxes"),
            "terrain.form='boxes': the ground of terrain.tiles.waves is not made of level pieces",
        ),
        (("stairs", "terrain.tiles.stairs_up.thread=1"), "unknown key 'terrain.tiles.stairs_up.thread': did you mean"),
        (("stairs", "terrain.tiles.stairs_up.tread=0"), "terrain.tiles.stairs_up.tread=0.0: must be in [0.05, 5] m"),
        (
            ("stairs", "terrain.tiles.stairs_up.platform=1"),
            "terrain.tiles.stairs_up (row 0, column 0): leaves no spawn",
        ),
        (("stairs", "terrain.resolution=0.07"), "terrain.tile_size=8.0: must be a whole number of cells of 0.07 m"),
        (("stairs", "wide=3"), "unknown key 'wide'"),
        (("stairs", "out=a.jpg"), "out=a.jpg: must end in .png"),
        (("stairs", "out=no/a.png"), "out=no/a.png: there is no folder no"),
        (("stairs", "gaps"), "name=stairs and name=gaps: name is given twice"),
    ],
)
def test_what_cannot_be_had_is_one_line(run, in_tmp, words, line):
    code, _, err = run("terrain", *words)
    assert code == 2
    assert line in err
    assert len(err.splitlines()) == 1
    assert not list(in_tmp.iterdir())


def test_facts_of_a_terrain_with_drawn_difficulty():
    terrain = build_terrain(
        TerrainCfg(tiles={"a": Stairs()}, num_rows=2, num_columns=1, curriculum=False, form="boxes")
    )
    text = "\n".join(facts(terrain))
    assert "drawn at random" in text
    assert f"{len(terrain.boxes)} boxes" in text
    assert "2 spawn points" in text


def test_the_ground_of_a_task_is_drawn_with_the_task_s_numbers(run, in_tmp, gl, monkeypatch):
    from robot_rl_tasks import registry

    from robot_rl.sources import native

    task = native.find_task("go2_flat")
    task.terrain = PRESETS["gaps"][1]()
    monkeypatch.setattr(native, "find_task", lambda name: task)
    monkeypatch.setattr(registry, "list_tasks", lambda: ["go2_gaps"])
    code, out, err = run("terrain", "go2_gaps", "rows=2", "size=200", "terrain.tiles.gaps.depth=0.4")
    assert code == 0, err
    assert "depth 0.4" in out
    assert "heights -0.40 to 0.00 m" in out
    assert out.endswith("/terrain_go2_gaps.png\n")
    assert task.terrain.tiles["gaps"].depth == 1.0
    assert "\ntasks with a terrain:\n  go2_gaps\n" in run("terrain", "list")[1]
