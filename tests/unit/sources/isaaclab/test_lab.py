"""Error messages where Isaac Lab is missing, or another version, or has no such environment."""

from importlib import metadata

import pytest

from robot_rl.cli.main import main
from robot_rl.errors import UserError
from robot_rl.sources.isaaclab import lab


@pytest.fixture
def version(monkeypatch):
    """Lets Isaac Lab be installed in a version, or not at all."""

    def be(found):
        def version_of(name):
            if found is None:
                raise metadata.PackageNotFoundError(name)
            return found

        monkeypatch.setattr(lab.metadata, "version", version_of)

    return be


def test_a_missing_isaac_lab_is_one_line_and_nothing_is_written(version, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    version(None)
    assert main(["train", "task=isaac/Isaac-Cartpole-Direct"]) == 2
    err = capsys.readouterr().err
    assert err.count("\n") == 1
    assert "task=isaac/Isaac-Cartpole-Direct: Isaac Lab is not installed" in err
    assert "make isaac" in err
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("found", ["2.3.1", "3.1.0", "4.0"])
def test_another_version_is_refused(version, found):
    version(found)
    with pytest.raises(UserError, match=rf"isaac/X: this is isaaclab {found}, 3\.0\.0 is needed; make isaac"):
        lab.require_lab("isaac/X")


@pytest.mark.parametrize("found", ["3.0.0", "3.0.1"])
def test_the_same_version_is_taken(version, found):
    version(found)
    lab.require_lab("isaac/X")


@pytest.mark.parametrize("name", ["isaac/", "isaac/a-b:X", "isaac/module:"])
def test_a_name_without_an_id_is_refused(name):
    with pytest.raises(
        UserError, match=r"write isaac/<id> such as isaac/Isaac-Cartpole-Direct, or isaac/<module>:<id>"
    ):
        lab.find_spec(name)


@pytest.mark.parametrize(
    ("name", "near"),
    [
        ("Isaac-Cartpole-v0", "did you mean 'Isaac-Cartpole'?"),
        ("Isaac-Velocity-Flat-Unitree-Go2-v0", "did you mean 'Isaac-Velocity-Flat-UnitreeGo2'?"),
        ("Isaac-Cartpol-Direct", "did you mean 'Isaac-Cartpole-Direct'?"),
        ("nothing", "such as Isaac-Cartpole-Direct, Isaac-Velocity-Flat-UnitreeGo2"),
    ],
)
def test_the_nearest_id_is_offered_also_for_names_of_version_2(name, near):
    known = dict.fromkeys(("Isaac-Cartpole", "Isaac-Cartpole-Direct", "Isaac-Velocity-Flat-UnitreeGo2"))
    assert lab._nearest(name, known) == near


def test_output_is_hidden_at_the_start_and_shown_again_afterwards(capfd):
    with lab.hushed():
        print("hidden")
        lab.os.write(2, b"hidden, too")
    print("shown", flush=True)
    assert capfd.readouterr() == ("shown\n", "")
