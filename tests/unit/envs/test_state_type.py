"""The stub by which an editor completes the fields of ``s`` has those of the tables that build the struct.

python tests/unit/envs/test_state_type.py > envs/robot_rl_envs/terms/state.pyi      writes it again
"""

from pathlib import Path

import warp as wp
from robot_rl_envs.entity.state import CONSTANTS, ENTITY_FIELDS, WORLD_FIELDS

STUB = Path(__file__).parents[3] / "envs" / "robot_rl_envs" / "terms" / "state.pyi"
NAMES = {wp.float32: "float", wp.int32: "int", wp.vec3: "Vec3", wp.vec4: "Vec4"}
POSES = (("pos_w", wp.vec3, "position [m]"), ("quat_wxyz", wp.vec4, "orientation"))
POSES += (("lin_vel_w", wp.vec3, "velocity [m/s]"), ("ang_vel_w", wp.vec3, "angular velocity [rad/s]"))
ENGINE = {
    "qpos": (wp.float32, 2, "(N, nq) MuJoCo's positions"),
    "qvel": (wp.float32, 2, "(N, nv) MuJoCo's velocities"),
    "ctrl": (wp.float32, 2, "(N, nu) MuJoCo's controls"),
    "sensordata": (wp.float32, 2, "(N, nsensordata) MuJoCo's sensors"),
    "actuator_force": (wp.float32, 2, "(N, nu) forces of the actuators [N or N m]"),
}
OBJECTS = {
    f"{kind}_{name}": (dtype, 2, f"(N, {count}) {meaning} of each {text}, world frame")
    for kind, count, text in (("object", "no", "object"), ("site", "ns", "site that a term names"))
    for name, dtype, meaning in POSES
} | {
    "object_joint_pos": (wp.float32, 2, "(N, noj) joint positions of the objects [rad or m]"),
    "object_joint_vel": (wp.float32, 2, "(N, noj) joint velocities of the objects [rad/s or m/s]"),
    "contact_force": (wp.float32, 2, "(N, nc) force of each contact that a term names [N]"),
}
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
    for name, (dtype, shape, meaning) in (ENTITY_FIELDS | WORLD_FIELDS).items():
        rows[name] = (dtype, 1 + len(shape), f"({', '.join(map(str, ('N', *shape)))}{',' * (not shape)}) {meaning}")
    text = HEAD
    for name, (dtype, ndim, meaning) in (rows | CONSTANTS | ENGINE | OBJECTS).items():
        text += f'    {name}: Array{ndim}[{NAMES[dtype]}]\n    """{meaning}"""\n'
    return text


def test_the_stub_has_the_fields_of_the_tables():
    assert STUB.read_text() == stub(), "see the head of this file"


if __name__ == "__main__":
    print(stub(), end="")
