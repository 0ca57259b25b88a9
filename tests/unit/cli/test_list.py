"""robot-rl list."""

from robot_rl_assets.registry import list_robots
from robot_rl_tasks.registry import list_tasks

from robot_rl.plugins import first_line


def test_everything_is_listed(run, in_tmp):
    code, out, _ = run("list")
    assert code == 0
    for name in (*list_tasks(), *list_robots(), "mujoco", "mujoco_warp"):
        assert f"\n  {name} " in out


def test_only_one_kind(run):
    _, out, _ = run("list", "robots")
    assert out.splitlines()[0] == "robots:"
    assert len(out.splitlines()) == 1 + len(list_robots())


def test_a_wrong_kind(run):
    code, _, err = run("list", "robot")
    assert code == 2
    assert "did you mean 'robots'?" in err
    assert run("list", "foo")[2].count("robots") == 1


def test_a_task_that_does_not_parse_is_listed_all_the_same(tmp_path):
    path = tmp_path / "__init__.py"
    path.write_text('"""What it is.\n\nMore."""\n')
    assert first_line(path) == "What it is"
    path.write_text("def (")
    assert "cannot be read" in first_line(path)
