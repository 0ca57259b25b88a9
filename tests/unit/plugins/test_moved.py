"""Names that plug-ins used before modules were moved."""

import importlib
import sys

import pytest

from robot_rl.moved import MOVED, new_name


@pytest.mark.parametrize("name", [*MOVED, "robot_rl.experiment.launchers.launcher", "robot_rl.flow.dag"])
def test_a_former_name_is_the_module_with_a_warning(monkeypatch, name):
    for known in filter(new_name, tuple(sys.modules)):
        monkeypatch.delitem(sys.modules, known)
    with pytest.warns(FutureWarning, match=f"{name} is {new_name(name)} now"):
        found = importlib.import_module(name)
    new = importlib.import_module(new_name(name))
    assert found is new
    assert new.__spec__.name == new_name(name)
