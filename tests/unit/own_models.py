"""Models as a stranger brings them: a quadruped in MuJoCo's format with meshes, an arm with a gripper as URDF."""

from pathlib import Path

BOX = """
v -0.02 -0.01 0
v 0.02 -0.01 0
v 0.02 0.01 0
v -0.02 0.01 0
v -0.02 -0.01 -0.2
v 0.02 -0.01 -0.2
v 0.02 0.01 -0.2
v -0.02 0.01 -0.2
f 1 2 3
f 1 3 4
f 5 7 6
f 5 8 7
f 1 6 2
f 1 5 6
f 3 8 4
f 3 7 8
"""
LEG = """
      <body name="{name}_hip" pos="{x} {y} 0">
        <inertial pos="0 0 0" mass="0.6" diaginertia="0.001 0.001 0.001"/>
        <joint name="{name}_hip_joint" axis="1 0 0" range="-50 50"/>
        <body name="{name}_thigh" pos="0 {out} 0">
          <inertial pos="0 0 -0.05" mass="1" diaginertia="0.005 0.005 0.001"/>
          <joint name="{name}_thigh_joint" range="-40 200"/>
          <geom type="mesh" mesh="link"/>
          <body name="{name}_calf" pos="0 0 -0.2">
            <inertial pos="0 0 -0.1" mass="0.2" diaginertia="0.001 0.001 0.0001"/>
            <joint name="{name}_calf_joint" range="-160 -50"/>
            <geom type="mesh" mesh="link" contype="0" conaffinity="0"/>
            <geom name="{name}_foot" size="0.02" pos="0 0 -0.2"/>
          </body>
        </body>
      </body>"""
QUADRUPED = """
<mujoco model="stranger">
  <compiler meshdir="meshes"/>
  <default><joint axis="0 1 0" damping="0.1" armature="0.01"/></default>
  <asset><mesh name="link" file="link.obj"/></asset>
  <worldbody>
    <light pos="0 0 3"/>
    <geom type="plane" size="5 5 0.1"/>
    <body name="trunk" pos="0 0 0.35">
      <freejoint/>
      <inertial pos="0 0 0" mass="5" diaginertia="0.02 0.06 0.07"/>
      <geom type="box" size="0.2 0.06 0.05"/>{legs}
    </body>
  </worldbody>
  <actuator>{motors}</actuator>
</mujoco>
"""


def write_quadruped(path: Path) -> None:
    """Write a dog of 12 joints, with its floor and motors, and a mesh beside it."""
    sides = {"FL": (0.18, 1), "FR": (0.18, -1), "RL": (-0.18, 1), "RR": (-0.18, -1)}
    legs = [LEG.format(name=name, x=x, y=0.05 * side, out=0.08 * side) for name, (x, side) in sides.items()]
    motors = [
        f'<motor joint="{name}_{part}_joint" ctrllimited="true" ctrlrange="-25 25"/>'
        for name in sides
        for part in ("hip", "thigh", "calf")
    ]
    path.write_text(QUADRUPED.format(legs="".join(legs), motors="".join(motors)))
    (path.parent / "meshes").mkdir()
    (path.parent / "meshes" / "link.obj").write_text(BOX)


LINK = """
  <link name="{name}">
    <inertial><origin xyz="0 0 {middle}"/><mass value="{mass}"/>
      <inertia ixx="{size}" iyy="{size}" izz="{size}" ixy="0" ixz="0" iyz="0"/></inertial>
    <visual><geometry><mesh filename="package://stranger/{name}.dae"/></geometry></visual>
    <collision><origin xyz="0 0 {middle}"/><geometry><box size="0.05 0.05 {length}"/></geometry></collision>
  </link>"""
JOINT = """
  <joint name="{name}" type="{kind}">
    <parent link="{parent}"/><child link="{child}"/><origin xyz="{place}"/><axis xyz="{axis}"/>
    <limit lower="{low}" upper="{high}" effort="{effort}" velocity="3"/>{mimic}
  </joint>"""


def write_arm(path: Path) -> None:
    """Write an arm of four joints and two fingers of which one follows the other; its meshes are not there."""
    names = ("base", "shoulder", "upper", "fore", "hand", "left", "right")
    lengths = (0.1, 0.1, 0.3, 0.25, 0.08, 0.05, 0.05)
    links = [
        LINK.format(name=name, middle=length / 2, length=length, mass=3 * length, size=0.01 * length)
        for name, length in zip(names, lengths, strict=True)
    ]
    rows = [
        ("pan", "base", "shoulder", 0.1, "0 0 1", -2.5, 2.5, 20),
        ("lift", "shoulder", "upper", 0.1, "0 1 0", -1.5, 1.5, 20),
        ("elbow", "upper", "fore", 0.3, "0 1 0", 0.2, 2.5, 15),
        ("wrist", "fore", "hand", 0.25, "0 1 0", -1.5, 1.5, 5),
    ]
    joints = [
        JOINT.format(name=name, kind="revolute", parent=parent, child=child, place=f"0 0 {z}", axis=axis, low=low,
                     high=high, effort=effort, mimic="")
        for name, parent, child, z, axis, low, high, effort in rows
    ]  # fmt: skip
    for side, sign, mimic in (("left", 1, ""), ("right", -1, '<mimic joint="left_slide"/>')):
        place, axis = f"0 {0.01 * sign} 0.08", f"0 {sign} 0"
        joints.append(
            JOINT.format(name=f"{side}_slide", kind="prismatic", parent="hand", child=side, place=place, axis=axis,
                         low=0, high=0.03, effort=10, mimic=mimic)
        )  # fmt: skip
    path.write_text(f'<?xml version="1.0"?>\n<robot name="stranger">{"".join(links + joints)}\n</robot>\n')
