"""The stub by which an editor completes the fields of ``s`` has those of the tables that build the struct.

python tests/unit/envs/test_state_type.py > envs/robot_rl_envs/terms/state.pyi      writes it again
"""

from pathlib import Path
from typing import Any

import pytest
import warp as wp
from robot_rl_envs.entity.state import CONSTANTS, ENGINE_FIELDS, FIELDS, TASK_FIELDS, TEAM_FIELDS
from robot_rl_envs.make import make_env
from robot_rl_tasks.registry import get_task

STUB = Path(__file__).parents[3] / "envs" / "robot_rl_envs" / "terms" / "state.pyi"
NAMES = {wp.float32: "float", wp.int32: "int", wp.vec3: "Vec3", wp.vec4: "Vec4", Any: "Any"}
HEAD = '''"""Fields of ``s``, written by tests/unit/envs/test_state_type.py from tables of robot_rl_envs.entity.state.

A row is a world (N of them; of a team a robot): ``s.joint_pos[i, j]``. Suffix ``_w``: world frame, ``_b``: base frame.
"""

from typing import Any, Generic, TypeVar

T = TypeVar("T")
Vec3 = Vec4 = Any  # Vectors of Warp: its functions are not typed for them.

class Array1(Generic[T]):
    shape: tuple[int]
    def __getitem__(self, at: int) -> T: ...
    def __setitem__(self, at: int, value: T) -> None: ...

class Array2(Generic[T]):
    shape: tuple[int, int]
    def __getitem__(self, at: tuple[int, int]) -> T: ...
    def __setitem__(self, at: tuple[int, int], value: T) -> None: ...

class State:
    step_dt: float
    """control period [s]"""
    def __getattr__(self, name: str) -> Any:
        """Fields that terms, sensors and events of the task add: commands, references, MuJoCo's model."""
'''


def stub():
    """The text of the stub."""
    rows = {}
    for name, (dtype, shape, meaning) in (FIELDS | ENGINE_FIELDS | TASK_FIELDS | TEAM_FIELDS).items():
        rows[name] = (dtype, 1 + len(shape), f"({', '.join(map(str, ('N', *shape)))}{',' * (not shape)}) {meaning}")
    text = HEAD
    for name, (dtype, ndim, meaning) in (rows | CONSTANTS).items():
        text += f'    {name}: Array{ndim}[{NAMES[dtype]}]\n    """{meaning}"""\n'
    return text


def test_the_stub_has_the_fields_of_the_tables():
    assert STUB.read_text() == stub(), "see the head of this file"


@pytest.mark.parametrize("name", ["panda_drawer", "go2_rough"])
def test_the_tables_have_what_a_task_adds(name):
    env = make_env(get_task(name), num_envs=2, engine="mujoco")
    declared = {
        field for section in env.cfg.sections().values() for term in section.values() for field in term.info.fields
    }
    known = FIELDS | CONSTANTS | ENGINE_FIELDS | TASK_FIELDS
    of_worlds = {field for field in dir(env.state) if len(getattr(env.state, field)) == env.num_envs}
    model = {field for field in of_worlds if f"{field}_nominal" in dir(env.state)}
    assert of_worlds - known.keys() - declared - model - {"overflow"} == set()
    for field in dir(env.state):
        if field in TASK_FIELDS and field != "command":
            dtype, shape, _ = TASK_FIELDS[field]
            vector = {wp.vec3: 1, wp.vec4: 1}.get(dtype, 0)
            assert getattr(env.state, field).ndim == 1 + len(shape) + vector, field


if __name__ == "__main__":
    print(stub(), end="")
