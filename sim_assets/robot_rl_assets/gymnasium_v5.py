"""The MuJoCo robots of Gymnasium's tasks of version 5, read from the files of the installed package `gymnasium`.

Their models are whole scenes with their own ground and motors (`Robot.complete`), and no machine was ever built like
them: they are for comparison with published results. They are therefore in no robot registry.
"""

import importlib.util
from pathlib import Path
from xml.etree import ElementTree

from robot_rl_assets.robot import Joint, Robot

FILES = {
    "ant": "ant.xml",
    "half_cheetah": "half_cheetah.xml",
    "hopper": "hopper.xml",
    "humanoid": "humanoid.xml",
    "walker2d": "walker2d_v5.xml",
}
MIRRORS: dict[str, dict[str, tuple[str, float]]] = {
    "ant": {
        **{f"hip_{a}": (f"hip_{b}", -1.0) for a, b in ((1, 4), (2, 3), (3, 2), (4, 1))},
        **{f"ankle_{a}": (f"ankle_{b}", 1.0) for a, b in ((1, 4), (2, 3), (3, 2), (4, 1))},
    },
    "humanoid": {
        "abdomen_z": ("abdomen_z", -1.0),
        "abdomen_x": ("abdomen_x", -1.0),
        **{
            f"{one}_{joint}": (f"{other}_{joint}", -1.0 if "shoulder" in joint else 1.0)
            for one, other in (("right", "left"), ("left", "right"))
            for joint in ("hip_x", "hip_z", "hip_y", "knee", "shoulder1", "shoulder2", "elbow")
        },
    },
    "walker2d": {
        f"{joint}{one}_joint": (f"{joint}{other}_joint", 1.0)
        for one, other in (("", "_left"), ("_left", ""))
        for joint in ("thigh", "leg", "foot")
    },
}
"""Partner and sign of the joints that the left-right mirror changes, if a robot has two sides."""
VELOCITY_LIMIT = 100.0  # [rad/s or m/s] no real joint has less


def gymnasium_robot(name: str) -> Robot:
    """One of Gymnasium's robots.

    Args:
        name: A key of `FILES`.

    Raises:
        ValueError: The robot does not exist, or the package or its model file is not installed.
    """
    if name not in FILES:
        raise ValueError(f"robot: unknown name '{name}'; Gymnasium's robots: {', '.join(FILES)}")
    path = model_path(name)
    root = ElementTree.parse(path).getroot()
    bodies = [(body, joint) for body in root.iterfind("worldbody//body") for joint in body.findall("joint")]
    base = next((body for body, joint in bodies if joint.get("type") == "free"), None)
    joints = {joint.attrib["name"]: joint for _, joint in bodies if joint.get("type") != "free"}
    usual = root.find("default/motor")
    motors = {motor.attrib["joint"]: _effort(motor, usual) for motor in root.iterfind("actuator/motor")}
    partners = MIRRORS.get(name, {})
    order = [*(joint for joint in joints if joint not in motors), *motors]
    return Robot(
        name=name,
        model=path,
        joints=tuple(
            Joint(
                name=joint,
                default_pos=float(joints[joint].get("ref", "0")),
                effort_limit=motors.get(joint, 0.0),
                velocity_limit=VELOCITY_LIMIT,
                mirror=partners.get(joint, (None, 1.0))[0],
                mirror_sign=partners.get(joint, (None, 1.0))[1],
            )
            for joint in order
        ),
        base_body=None if base is None else base.attrib["name"],
        base_height=0.0 if base is None else float(base.attrib["pos"].split()[2]),
        complete=True,
    )


def model_path(name: str) -> Path:
    """The model file of a robot inside the installed package; nothing of the package is imported.

    Raises:
        ValueError: The package is not installed, or lacks the file.
    """
    found = importlib.util.find_spec("gymnasium")
    if found is None or not found.submodule_search_locations:
        raise ValueError(f"robot '{name}': its model comes with gymnasium; pip install 'robot-rl[gymnasium]'")
    path = Path(found.submodule_search_locations[0], "envs", "mujoco", "assets", FILES[name])
    if not path.is_file():
        raise ValueError(f"robot '{name}': the installed gymnasium has no {path}; pip install 'gymnasium>=1.2'")
    return path


def _effort(motor: ElementTree.Element, usual: ElementTree.Element | None) -> float:
    """A motor's effort at full control [N m]; missing attributes are as usual in its file."""
    defaults = {} if usual is None else usual.attrib
    control = {**defaults, **motor.attrib}["ctrlrange"]
    return float(motor.attrib["gear"]) * float(control.split()[1])
