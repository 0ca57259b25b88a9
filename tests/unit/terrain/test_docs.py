"""The examples of the page about terrain run as written, and cover every kind."""

import re
import runpy
from pathlib import Path

import pytest
from robot_rl_envs.terrain import PRESETS

PAGE = Path(__file__).parents[3] / "docs" / "terrain.md"
BLOCKS = re.findall(r"^```python\n(.*?)^```$", PAGE.read_text(), re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("k", range(len(BLOCKS)))
def test_a_block_of_code_runs(tmp_path, capsys, k):
    # Warp reads a function's source from its file.
    path = tmp_path / f"block_{k}.py"
    path.write_text(BLOCKS[k])
    found = runpy.run_path(str(path))
    terrain = found.get("terrain")
    if terrain is not None:
        assert capsys.readouterr().out
        assert terrain.heights.size


def test_every_kind_is_on_the_page():
    text = PAGE.read_text()
    for name, (_, make) in PRESETS.items():
        assert name == "flat" or f"`{name}`" in text
        for tile in make().tiles.values():
            assert f"`{type(tile).__name__}`" in text
