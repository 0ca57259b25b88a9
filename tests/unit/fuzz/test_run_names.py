"""Any text as the name of a run: it is a run inside of the directory of runs, or it is refused in one line."""

import os
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from robot_rl.errors import UserError
from robot_rl.runs.run_dir import RUN_ID, RunDir, check_run_id

INSIDE, OUTSIDE, LINKED = "20260101-100000-1-aaaa", "20260102-100000-1-bbbb", "20260103-100000-1-cccc"


def make_run(path):
    path.mkdir(parents=True)
    (path / "run.yaml").write_text("config: {}\n")


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    """Runs, with links out of them and in a circle; the newest two are such links."""
    folder = tmp_path_factory.mktemp("fuzz")
    root = folder / "runs"
    make_run(root / "cartpole" / INSIDE)
    make_run(folder / "other" / "cartpole" / OUTSIDE)
    (root / "cartpole" / OUTSIDE).symlink_to(folder / "other" / "cartpole" / OUTSIDE)
    (root / "linked").symlink_to(folder / "other" / "cartpole")
    (root / "cartpole" / LINKED).symlink_to(root / "cartpole" / LINKED)
    (root / "around").symlink_to(root)
    (root / "cartpole" / "20260104-100000-1-dddd").mkdir()
    (root / "cartpole" / "20260104-100000-1-dddd" / "run.yaml").symlink_to("nowhere")
    return root


PARTS = ("..", ".", "", "~", "runs", "cartpole", "linked", "around", "other", "latest", INSIDE, OUTSIDE, LINKED, "\0")
NAMES = st.one_of(
    st.text(),
    st.lists(st.one_of(st.sampled_from(PARTS), st.text(max_size=3)), min_size=1, max_size=5).map("/".join),
    st.sampled_from(("a" * 300, "a/" * 3000, "\ud800", "/dev/zero", "/proc/self/cwd")),
)


@given(name=NAMES)
@example(name="latest")
@example(name="linked/latest")
@example(name=OUTSIDE)
@example(name=LINKED)
@example(name=f"around/cartpole/{INSIDE}")
@example(name=f"../other/cartpole/{OUTSIDE}")
def test_any_name(name, root, refuses):
    found, _ = refuses(UserError, RunDir.find, name, root)
    if found is not None:
        assert os.path.realpath(found.path) == str(root / "cartpole" / INSIDE)
    found, _ = refuses(UserError, RunDir.find, str(root / name) if "\0" not in name else name, root)
    assert found is None or os.path.realpath(found.path) == str(root / "cartpole" / INSIDE)


@given(name=NAMES)
@example(name=INSIDE)
@example(name=f"{INSIDE}\n")
def test_any_id_given_by_hand(name, refuses):
    found, _ = refuses(UserError, check_run_id, name)
    if found is not None:
        assert Path("runs", found).name == found
        assert found not in (".", "..", "latest")
        assert found.isascii()
        assert found.isprintable()
    assert found is not None or not RUN_ID.fullmatch(name)
