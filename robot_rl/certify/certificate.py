"""The file of a certificate: its content, its lines for people, and the comparison with an identified robot."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from robot_rl.errors import UserError
from robot_rl.files import finite, read_json
from robot_rl.identify.result import Identified
from robot_rl.metrics.description import shown_unit
from robot_rl.runs.outputs import CERTIFICATE_FORMAT

VERSION = 1
MAX_BYTES = 2**20
IDENTIFIED = {"gain": "motor_strength", "armature": "armature", "damping": "damping", "friction": "dry_friction"}
"""Parameters of a joint that `robot-rl identify` finds, and the property that each multiplies."""
POINT = ("value", "episodes", "success", "metric")
"""The columns of a property's points."""


def describe(policy: Any, bundle: Path, cfg: Any, figures: Mapping[str, Any]) -> dict[str, Any]:
    """Return the content of certificate.json, but for its lines.

    Args:
        policy: The `robot_rl.runs.policies.PolicySource`.
        bundle: The directory of its bundle.
        cfg: The `robot_rl.certify.certify.CertifyCfg`.
        figures: What `robot_rl.certify.certify.certify` returned, and "engines", "models" and "identified" if there
            are any.
    """
    digests = {name: hashlib.sha256((bundle / file).read_bytes()).hexdigest() for name, file in _FILES.items()}
    about = {"format": CERTIFICATE_FORMAT, "version": VERSION, **digests, "run": policy.run_id}
    about |= {"iteration": policy.iteration, "task": policy.cfg.task.name, "robot": policy.cfg.task.robot.name}
    about |= {"engine": policy.cfg.engine, "seed": cfg.seed, "success": cfg.success}
    found = finite({**about, **figures})
    return {**found, "lines": lines(found)}


_FILES = {"model": "policy.onnx", "contract": "contract.json"}


def to_text(content: Mapping[str, Any]) -> str:
    """Return the content as JSON with a line for each part."""
    parts = []
    for key, value in content.items():
        if key in ("parameters", "peaks", "engines", "models") and value:
            inner = ",\n  ".join(f"{json.dumps(name)}: {_flat(part)}" for name, part in value.items())
            parts.append(f"{json.dumps(key)}: {{\n  {inner}\n }}")
        elif key in ("pairs", "lines") and value:
            inner = ",\n  ".join(map(_flat, value))
            parts.append(f"{json.dumps(key)}: [\n  {inner}\n ]")
        else:
            parts.append(f"{json.dumps(key)}: {_flat(value)}")
    return "{\n " + ",\n ".join(parts) + "\n}\n"


def _flat(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"), allow_nan=False)


def read_certificate(path: str | Path) -> dict[str, Any]:
    """Read a certificate; raise UserError if it is not one, or is of another version."""
    data = read_json(Path(path), MAX_BYTES)
    if not isinstance(data, dict) or data.get("format") != CERTIFICATE_FORMAT:
        raise UserError(f"{path}: is not a file of robot-rl certify; make one with robot-rl certify policy=...")
    if data.get("version") != VERSION:
        raise UserError(f"{path}: version={data.get('version')!r}, this program reads {VERSION}")
    return data


def lines(content: Mapping[str, Any]) -> list[str]:
    """Return the lines of a certificate for people; those of a check that failed begin with FAILED."""
    goal = content["goal"]
    nominal = content["nominal"]
    found = [_line(nominal["holds"], f"nominal: {_success(nominal)}{_metric(goal, nominal)}")]
    found += [_line(row["holds"], f"{name}: {bears(row)}") for name, row in content["parameters"].items()]
    if corner := content["corner"]:
        values = ", ".join(f"{name} {value:.3g}" for name, value in corner["values"].items())
        found.append(_line(corner["holds"], f"worst corner: {_success(corner)}{_metric(goal, corner)} at {values}"))
    for name, row in content["peaks"].items():
        found.append(_line(row["holds"], f"{name}: {_peak(row)}"))
    for kind in ("engines", "models"):
        for name, row in (content.get(kind) or {}).items():
            found.append(_line(row["holds"], f"{kind[:-1]} {name}: {_success(row)}{_metric(goal, row)}"))
    identified = content.get("identified")
    return [*found, *(identified["lines"] if identified else [])]


def bears(row: Mapping[str, Any]) -> str:
    """Return a property's margins in words."""
    ends = [end(row, side) for side in ("low", "high") if side in row]
    trained = row["trained"]
    text = " and ".join(ends)
    return text if trained is None else f"{text}; trained {trained[0]:.3g} to {trained[1]:.3g}"


def end(row: Mapping[str, Any], side: str) -> str:
    """Return the margin of a side in words."""
    unit, found = shown_unit(row["unit"]), row[side]
    text = f"{'up to' if side == 'high' else 'down to'} {found['value']:.3g}{f' {unit}' if unit else ''}"
    if found["holds_to_end"]:
        return f"{text} (nothing failed)"
    return f"{text} ({found['lo']:.3g} to {found['hi']:.3g}; then {found['limit']})"


def _line(holds: bool | None, text: str) -> str:
    return f"FAILED {text}" if holds is False else text


def _success(row: Mapping[str, Any]) -> str:
    return f"success {row['success']:.3f} ({row['lo']:.3f} to {row['hi']:.3f})"


def _metric(goal: Mapping[str, Any] | None, row: Mapping[str, Any]) -> str:
    if goal is None or row.get("metric") is None:
        return ""
    unit = shown_unit(goal["unit"])
    bound = "" if goal["bound"] is None else f", bound {goal['bound']:.3g}"
    return f", {goal['name']} {row['metric']:.3g}{f' {unit}' if unit else ''}{bound}"


def _peak(row: Mapping[str, Any]) -> str:
    unit = shown_unit(row["unit"])
    text = f"{row['value']:.3g}{f' {unit}' if unit else ''}"
    text += f" of {row['joint']}" if "joint" in row else ""
    text += "" if row["limit"] is None else f", limit {row['limit']:.3g}"
    return text + (f", in {row['share']:.0%} of episodes" if row.get("share") else "")


def compare(content: Mapping[str, Any], found: Identified, robot: Any) -> dict[str, Any]:
    """Return which identified parameters are inside the margins of a certificate: "rows", "lines" and "holds".

    Args:
        content: The certificate.
        found: The identified parameters.
        robot: The robot that the policy was trained with: its kd belong to the damping, and factors are on its own
            measured dynamics, if it has some.

    Raises:
        UserError: The file is of another robot.
    """
    if found.robot != robot.name:
        raise UserError(f"identified: is of the robot {found.robot}, the policy is for {robot.name}")
    gains = {joint.name: joint.kd for joint in robot.joints}
    known = {joint.name: joint.dynamics for joint in robot.joints}
    rows: list[dict[str, Any]] = []
    for joint, names in found.joints.items():
        for name, estimate in names.items():
            prop = content["parameters"].get(IDENTIFIED.get(name, ""))
            own = gains.get(joint, 0.0) if name == "damping" else 0.0
            trained = getattr(known.get(joint), name, None)
            base = (estimate.nominal if trained is None else trained) + own
            if prop is None or not estimate.seen or base <= 0:
                continue
            rows.append(_place(prop, IDENTIFIED[name], joint, (estimate.value + own) / base))
    delay = found.delay
    if delay is not None and delay.seen and "delay" in content["parameters"]:
        rows.append(_place(content["parameters"]["delay"], "delay", "", delay.value))
    return {"rows": rows, "lines": _identified_lines(rows, content), "holds": all(row["inside"] for row in rows)}


def _place(prop: Mapping[str, Any], name: str, joint: str, value: float) -> dict[str, Any]:
    low = prop["low"]["value"] if "low" in prop else min(prop["nominal"], value)
    high = prop["high"]["value"] if "high" in prop else max(prop["nominal"], value)
    return {"name": name, "joint": joint, "value": float(f"{value:.4g}"), "inside": low <= value <= high}


def _identified_lines(rows: list[dict[str, Any]], content: Mapping[str, Any]) -> list[str]:
    """Return a line for each property, of the values outside if there are any."""
    found = []
    for name in dict.fromkeys(row["name"] for row in rows):
        own = [row for row in rows if row["name"] == name]
        outside = [row for row in own if not row["inside"]]
        values, unit = [row["value"] for row in outside or own], shown_unit(content["parameters"][name]["unit"])
        span = f"{min(values):.3g}" if len(values) == 1 else f"{min(values):.3g} to {max(values):.3g}"
        span += f" {unit}" if unit else ""
        joints = [row["joint"] for row in outside if row["joint"]]
        of = f" of {', '.join(joints[:3])}" if joints else ""
        of += f" and {len(joints) - 3} other joints" if len(joints) > 3 else ""
        found.append(_line(not outside, f"identified {name}{of}: {span} is {'outside' if outside else 'inside'}"))
    return found
