"""A flow for OSMO: one workflow, a task for each step, files passed on as outputs and inputs of tasks.

A task copies its inputs into its own directory, runs the command there, and copies the files of the step to its
output. See https://nvidia.github.io/OSMO/main/user_guide/workflows/specification/index.html.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from robot_rl.cluster.flow.dag import Computer, Flow, Step
from robot_rl.cluster.launchers.osmo import RUN, resource, workflow
from robot_rl.errors import UserError, suggest

CREDENTIAL = "robot-rl-signing"
"""OSMO's generic credential with the key to sign with, and the variable that the task gets it in."""
VARIABLE, PAYLOAD = "ROBOT_RL_SIGNING_KEY", "key"
WORK = "/tmp/robot-rl-flow"
STORAGE = "20Gi"
SAFE = re.compile(r"[A-Za-z0-9._/-]+")
JINJA = re.compile(r"\{[{%#]")


def render(flow: Flow, image: str, platforms: Mapping[str, str], made_by: str = "") -> str:
    """Return the workflow of a flow.

    Args:
        flow: The flow.
        image: Container image with robot-rl, and its runtime for the edge.
        platforms: Computer -> the platform of OSMO that has it.
        made_by: The command that makes it, for its header.

    Raises:
        UserError: A computer is unknown, or a path, a word or a file cannot be written for OSMO.
    """
    for name, platform in platforms.items():
        if name not in list(Computer):
            raise UserError(f"platform.{name}", platform, "is not a computer", suggest(name, list(Computer)))
        if not SAFE.fullmatch(platform):
            raise UserError(f"platform.{name}", platform, "must be a name of letters, digits and ._/-")
    if not image:
        raise UserError("target=osmo: needs image=<container image with robot-rl, and its runtime for the edge>")
    resources, tasks = {}, []
    for step in flow.order():
        _check_step(step)
        needs = step.resources
        name = f"{needs.computer.value}-{needs.cpus}-{needs.gpus}-{needs.memory_gb}"
        platform = platforms.get(needs.computer, "")
        resources[name] = resource(needs.cpus, needs.gpus, f"{needs.memory_gb}Gi", STORAGE, platform)
        tasks.append(_task(flow, step, image, name))
    limit = 60 * max(step.resources.minutes for step in flow.steps)
    return workflow(re.sub(r"[^A-Za-z0-9_-]", "-", flow.id), limit, resources, {"tasks": tasks}, made_by)


def _check_step(step: Step) -> None:
    """Raise UserError for words that OSMO would change, and paths that another computer cannot have."""
    for output in step.outputs.values():
        if not SAFE.fullmatch(output.path):
            raise UserError(f"{output.path}: for target=osmo paths have letters, digits and ._/- only")
        if Path(output.path).is_absolute() or ".." in Path(output.path).parts:
            raise UserError(f"{output.path}: for target=osmo paths are below the flow's directory; give root=runs")
    for word in step.command:
        if JINJA.search(word):
            raise UserError(f"{word}: OSMO would take its braces for a template; omit them")


def _read_public(path: str) -> str:
    """Return the text of a file that goes with the workflow; raise UserError if it cannot be sent."""
    try:
        text = Path(path).read_text()
    except (OSError, ValueError):
        raise UserError(f"{path}: cannot be read; it goes to the cluster with the workflow") from None
    if JINJA.search(text):
        raise UserError(f"{path}: OSMO would take its braces for a template; omit them")
    return text


def _task(flow: Flow, step: Step, image: str, resources: str) -> dict[str, Any]:
    files = {RUN: _script(flow, step), **{f"/tmp/files/{Path(path).name}": _read_public(path) for path in step.files}}
    return {
        "name": step.name,
        "image": image,
        "command": ["bash"],
        "args": [RUN],
        "resource": resources,
        "files": [{"path": path, "contents": text} for path, text in files.items()],
        **({"inputs": [{"task": name} for name in step.needs()]} if step.needs() else {}),
        **({"credentials": {CREDENTIAL: {VARIABLE: PAYLOAD}}} if step.secrets else {}),
    }


def _script(flow: Flow, step: Step) -> str:
    """Return the lines that fetch a step's inputs, run it, check its outputs, and pass them on."""
    lines = ["set -eu", f"mkdir -p {WORK} && cd {WORK}"]
    lines += [f"cp -a {{{{input:{place}}}}}/. ." for place, name in enumerate(step.needs()) if flow[name].outputs]
    for path in (*step.files, *step.secrets):
        quoted = shlex.quote(path)
        lines.append(f"mkdir -p {shlex.quote(str(Path(path).parent))}")
        if path in step.files:
            lines.append(f"cp {shlex.quote(f'/tmp/files/{Path(path).name}')} {quoted}")
        else:
            lines.append(f"(umask 077 && printf '%s\\n' \"${VARIABLE}\" > {quoted})")
    paths = [output.path for output in step.outputs.values()]
    command = shlex.join(flow.words(step))
    if paths:
        lines.append(f"mkdir -p {shlex.join(sorted({str(Path(path).parent) for path in paths}))}")
    if any(step.codes):
        lines.append(f"rm -f {shlex.join(paths)}")
        pattern = "|".join(str(code) for code in step.codes if code)
        command += f' || {{ code=$?; case $code in {pattern}) ;; *) exit "$code" ;; esac; }}'
    lines.append(command)
    for path in paths:
        missing = shlex.quote(f"{step.name}: did not write {path}")
        lines.append(f"test -e {shlex.quote(path)} || {{ echo {missing} >&2; exit 1; }}")
    lines += [f"cp -a --parents {shlex.quote(path)} {{{{output}}}}/" for path in paths]
    return "\n".join(lines) + "\n"
