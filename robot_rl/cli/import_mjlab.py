"""Make a policy bundle of a policy that was trained with mjlab.

usage: robot-rl import-mjlab policy=FILE.onnx [key=value ...]

{Options}

mjlab's file names joints, gains, scales and observation terms, rounded to three decimals. The facts add other values
that a robot needs: control_period_s and physics_timestep_s of the training, the limits of every joint (effort_limit 0:
no motor), the command's components with their ranges and, under "exact", any value that three decimals spoil. The first
call writes them as a form, the second one the bundle. Its golden sequence is drawn at random: mjlab's simulation is
not here to record one in.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from robot_rl.cli.options import option, read_all
from robot_rl.errors import UserError
from robot_rl.runs.outputs import check_bundle, check_output

if TYPE_CHECKING:
    from robot_rl_deploy.mjlab import Metadata

MAX_FACTS, MAX_MODEL = 2**20, 512 * 2**20


@dataclass(kw_only=True, slots=True)
class Options:
    """Options of robot-rl import-mjlab."""

    policy: str = option("", "the ONNX file that mjlab wrote")
    facts: str = option("facts.json", "the facts that the ONNX file lacks; if missing, written as a form to fill in")
    model: str = option("", "MJCF of the robot, from which the form takes the joints' limits")
    out: str = option("policy", "directory of the bundle, new, empty or a bundle's")


def run(arguments: Sequence[str]) -> int:
    """Write the bundle, or the form of facts if there are none."""
    from robot_rl_deploy.mjlab import read_facts, read_metadata
    from robot_rl_deploy.mjlab_bundle import import_bundle
    from robot_rl_deploy.strict import ContractError

    from robot_rl.files import read_plain, write_atomic

    options = read_all(Options, arguments)
    if not options.policy:
        raise UserError("policy=: name the ONNX file that mjlab wrote")
    out = check_bundle("out", options.out)
    try:
        model = read_plain(Path(options.policy), MAX_MODEL)
    except FileNotFoundError:
        raise UserError("policy", options.policy, "does not exist") from None
    try:
        read_metadata(model)
    except ContractError as error:
        what = str(error).removesuffix("; export the bundle again")
        raise UserError("policy", options.policy, f"no file that mjlab wrote and a robot could run: {what}") from None
    facts = Path(options.facts)
    try:
        text = read_plain(facts, MAX_FACTS).decode(errors="replace")
    except FileNotFoundError:
        check_output("facts", options.facts, None)
        write_atomic(facts, json.dumps(make_form(read_metadata(model), _limits(options.model)), indent=1) + "\n")
        print(f"{facts}: fill in each null, then give the same command again")
        return 0
    report = import_bundle(model, read_facts(text), out)
    contract = report.contract
    print(f"{options.out}: {contract.robot}, {len(contract.joints)} joints, digest {report.digest}")
    print(f"  an action every {contract.control_period_s:g} s, targets around the default pose (use_default_offset)")
    return 0


def make_form(metadata: "Metadata", limits: dict[str, dict[str, float | None]]) -> dict[str, Any]:
    """Return the facts with null for everything that neither the policy nor a model specifies.

    Args:
        metadata: From the ONNX file.
        limits: Joint -> limits, of those that are known.
    """
    unknown = {"effort_limit": None, "velocity_limit": None, "lower": None, "upper": None}
    commanded = any(term[0] == "command" for term in metadata.terms)
    components = [{"name": name, "lower": None, "upper": None} for name in ("vx", "vy", "yaw")] if commanded else []
    return {
        "robot": None,
        "control_period_s": None,
        "physics_timestep_s": None,
        "joints": {name: unknown | limits.get(name, {}) for name in metadata.joint_names},
        "command": components,
        "fallback_pose": None,
        "observations": {},
        "action_clip": None,
        "exact": {},
    }


def _limits(path: str) -> dict[str, dict[str, float | None]]:
    """Return position and effort limits of a model's hinges and slides, by name; empty without a model."""
    if not path:
        return {}
    import importlib

    if Path(path).exists() and not Path(path).is_file():
        raise UserError("model", path, "is a directory, pipe or device", "name an MJCF file")
    mujoco: Any = importlib.import_module("mujoco")  # compiled, without stubs
    try:
        model = mujoco.MjModel.from_xml_path(path)
    except Exception as error:  # MuJoCo's exceptions share no other base
        raise UserError("model", path, f"cannot be read ({error})", "name an MJCF file") from None
    joints = {}
    for index in range(model.njnt):
        joint = model.joint(index)
        if int(joint.type[0]) not in (int(mujoco.mjtJoint.mjJNT_HINGE), int(mujoco.mjtJoint.mjJNT_SLIDE)):
            continue
        bounded = bool(model.jnt_limited[index])
        lower, upper = (float(value) if bounded else None for value in joint.range)
        joints[joint.name] = {"lower": lower, "upper": upper}
        if model.jnt_actfrclimited[index]:
            joints[joint.name]["effort_limit"] = float(model.jnt_actfrcrange[index][1])
    for index in range(model.nu):
        if int(model.actuator_trntype[index]) == int(mujoco.mjtTrn.mjTRN_JOINT) and model.actuator_forcelimited[index]:
            name = model.joint(model.actuator_trnid[index][0]).name
            joints[name].setdefault("effort_limit", float(model.actuator_forcerange[index][1]))
    return joints
