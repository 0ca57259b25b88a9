"""Builders of robot files, and drafts of robots from them."""

import mujoco
import pytest

from robot_rl.errors import UserError
from robot_rl.robots.draft import draft_robot, make_robot, write_files
from robot_rl.robots.parts import Gains

CORNERS = ((-0.01, -0.01), (0.01, -0.01), (0.01, 0.01), (-0.01, 0.01))
FACES = ("1 2 3", "1 3 4", "5 7 6", "5 8 7", "1 6 2", "1 5 6", "3 8 4", "3 7 8")
BAR = "".join(f"v {x} {y} {z}\n" for z in (0, -0.2) for x, y in CORNERS) + "".join(f"f {face}\n" for face in FACES)


def _bent_leg(name, x, y):
    """A leg with a mesh that is only seen, whose knee cannot be straight; right knees turn about the other axis."""
    axis, low, high = (1, -2.5, -0.5) if y > 0 else (-1, 0.5, 2.5)
    return f"""
<body name="{name}_thigh" pos="{x} {y} 0">
  <inertial pos="0 0 -0.1" mass="1" diaginertia="0.004 0.004 0.001"/>
  <joint name="{name}_hip" axis="0 1 0" range="-1.5 1.5" damping="0.1"/>
  <geom name="{name}_mesh" type="mesh" mesh="bar" contype="0" conaffinity="0" group="1"/>
  <body name="{name}_calf" pos="0 0 -0.2">
    <inertial pos="0 0 -0.1" mass="0.3" diaginertia="0.001 0.001 0.0002"/>
    <joint name="{name}_knee" axis="0 {axis} 0" range="{low} {high}"/>
    <geom type="capsule" fromto="0 0 0 0 0 -0.18" size="0.015"/>
    <geom type="sphere" size="0.025" pos="0 0 -0.2"/>
  </body>
</body>"""


PLACES = {"FL": (0.2, 0.1), "FR": (0.2, -0.1), "RL": (-0.2, 0.1), "RR": (-0.2, -0.1)}
UNLIMITED = [f"{name}_{part}" for name in PLACES for part in ("hip", "knee")][2:]
DOG = f"""
<mujoco>
  <compiler meshdir="parts" angle="radian"/>
  <asset><mesh name="bar" file="bar.obj"/></asset>
  <worldbody>
    <light pos="0 0 3"/><geom type="plane" size="5 5 1"/>
    <body name="table" pos="2 0 0"><geom type="box" size="0.1 0.1 0.1"/></body>
    <body name="trunk" pos="0 0 0.5">
      <inertial pos="0 0 0" mass="5" diaginertia="0.05 0.1 0.1"/>
      <freejoint/>
      <geom type="box" size="0.2 0.1 0.05"/>{"".join(_bent_leg(name, *place) for name, place in PLACES.items())}
    </body>
  </worldbody>
  <actuator><motor joint="FL_hip" ctrllimited="true" ctrlrange="-2 2" gear="6"/>
    <position joint="FL_knee" kp="30" forcerange="-9 9"/>{"".join(f'<motor joint="{name}"/>' for name in UNLIMITED)}
  </actuator>
</mujoco>
"""
"""A dog with a floor, a table and some actuators, whose mesh is parts/bar.obj."""


def drafted(path, *, base="auto", collision="meshes", gains=None):
    """A draft of a file, its robot and its compiled model."""
    draft, files = draft_robot("dog", path, base=base, collision=collision, gains=gains or Gains(5.0, 1.0))
    folder = path.parent / "new"
    write_files(folder, files)
    robot = make_robot(draft, "dog", folder / "model.xml")
    return draft, robot, mujoco.MjModel.from_xml_path(str(robot.model))


def notes(draft, start):
    return [line for line in draft.notes if line.startswith(start)]


def refused(path, **options):
    with pytest.raises(UserError) as error:
        drafted(path, **options)
    assert "\n" not in str(error.value)
    return str(error.value)


def leg(side, x, y, up):
    """A leg of two hinges whose foot is below the base; `up` makes of (x, y, z) the base's own axes."""

    def at(*place):
        return " ".join(f"{value:g}" for value in up(*place))

    return (
        f'<body name="{side}_thigh" pos="{at(x, y, 0)}"><joint name="{side}_hip" axis="{at(0, 1, 0)}" range="-1 1"/>'
        f'<geom type="capsule" fromto="0 0 0 {at(0, 0, -0.2)}" size="0.02" mass="0.4"/>'
        f'<body name="{side}_calf" pos="{at(0, 0, -0.2)}"><joint name="{side}_knee" axis="{at(0, 1, 0)}" range="-1 1"/>'
        f'<geom type="capsule" fromto="0 0 0 {at(0, 0, -0.2)}" size="0.02" mass="0.2"/></body></body>'
    )


def dog(body="", *, head="", more="", up=lambda x, y, z: (x, y, z), geom='type="box" size="0.2 0.1 0.1"', extra=""):
    legs = "".join(leg(name, *place, up) for name, place in PLACES.items())
    return (
        f'<mujoco><compiler angle="radian"/>{head}<worldbody><body name="trunk" pos="0 0 0.5" {body}><freejoint/>'
        f'<geom {geom} mass="5"/>{extra}{legs}</body></worldbody>{more}</mujoco>'
    )


def write(folder, text, name="dog.xml"):
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


LIMIT = 'lower="-1" upper="1" effort="5" velocity="2"'
LINK = (
    '<link name="{name}"><inertial><origin xyz="{com}"/><mass value="{mass}"/>'
    '<inertia ixx="{ixx}" iyy="{iyy}" izz="{izz}" ixy="0" ixz="0" iyz="0"/></inertial>{shape}</link>'
)


def link(name, shape="", mass=1.0, com="0 0 0", moments=(0.01, 0.01, 0.01)):
    ixx, iyy, izz = moments
    return LINK.format(name=name, shape=shape, mass=mass, com=com, ixx=ixx, iyy=iyy, izz=izz)


def joint(name, parent, child, kind="revolute", limit=LIMIT, more="", at="0 0 0"):
    limit = f"<limit {limit}/>" if limit and kind != "fixed" else ""
    return (
        f'<joint name="{name}" type="{kind}"><origin xyz="{at}"/><parent link="{parent}"/><child link="{child}"/>'
        f'<axis xyz="0 1 0"/>{limit}{more}</joint>'
    )


def urdf(*elements):
    return f'<robot name="r">{"".join(elements)}</robot>'
