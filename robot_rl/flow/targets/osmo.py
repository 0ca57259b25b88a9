"""A flow for OSMO: one workflow, a task for each step, files passed on as outputs and inputs of tasks.

A task copies its inputs into a directory of its own, runs the command there, and copies what the step wrote to its
output. See https://nvidia.github.io/OSMO/main/user_guide/workflows/specification/index.html.
"""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Any

from robot_rl.errors import UserError
from robot_rl.flow.dag import Computer, Flow, Resources, Step
from robot_rl.flow.targets.shell import ClusterCfg, body, check_paths

CREDENTIAL = "robot-rl-signing"
"""OSMO's generic credential with the key to sign with, and the variable that the task gets it in."""
VARIABLE, PAYLOAD = "ROBOT_RL_SIGNING_KEY", "key"
WORK = "/tmp/robot-rl-flow"
STORAGE_GB = 20
JINJA = re.compile(r"\{[{%#]")


def manifests(flow: Flow, cfg: ClusterCfg, folder: str) -> dict[str, str]:
    """Return file -> content of a flow for OSMO; raise UserError where a path or a word cannot be written for it."""
    import yaml

    check_paths(flow, "osmo", relative=True)
    if not cfg.image:
        raise UserError("target=osmo: needs image=<container image with robot-rl, and its runtime for the edge>")
    for word in (word for step in flow.steps for word in step.command if JINJA.search(word)):
        raise UserError(f"{word}: OSMO would take its braces for a template; leave them out")
    files: dict[str, str] = {}
    for step in flow.steps:
        files |= {f"files/{Path(path).name}": read_public(path) for path in step.files}
    tree = {
        "workflow": {
            "name": re.sub(r"[^A-Za-z0-9_-]", "-", flow.id),
            "timeout": {"exec_timeout": f"{max(step.resources.minutes for step in flow.steps)}m"},
            "resources": _resources(flow, cfg),
            "tasks": [_task(flow, step) for step in flow.order()],
        },
        "default-values": {"image": cfg.image},
    }
    text = yaml.dump(tree, Dumper=_dumper(), sort_keys=False, width=1000)
    head = f"# {flow.name} {flow.id}: osmo workflow validate workflow.yaml, then osmo workflow submit workflow.yaml\n"
    return {"workflow.yaml": head + text, **files}


def read_public(path: str) -> str:
    """Return the text of a file that goes with the workflow; raise UserError where there is none."""
    try:
        return Path(path).read_text()
    except (OSError, ValueError):
        raise UserError(f"{path}: cannot be read; it goes to the cluster with the workflow") from None


def _name(resources: Resources) -> str:
    size = f"{resources.cpus}-{resources.gpus}-{resources.memory_gb}"
    return f"{resources.computer.value}-{size}"


def _resources(flow: Flow, cfg: ClusterCfg) -> dict[str, dict[str, Any]]:
    found: dict[str, dict[str, Any]] = {}
    for each in (step.resources for step in flow.order()):
        entry: dict[str, Any] = {"cpu": each.cpus, "gpu": each.gpus}
        entry |= {"memory": f"{each.memory_gb}Gi", "storage": f"{STORAGE_GB}Gi"}
        if platform := cfg.platforms.get(Computer(each.computer)):
            entry["platform"] = platform
        found[_name(each)] = entry
    return found


def _task(flow: Flow, step: Step) -> dict[str, Any]:
    needs = list(step.needs())
    task: dict[str, Any] = {
        "name": step.name,
        "image": "{{ image }}",
        "command": ["bash"],
        "args": ["/tmp/run.sh"],
        "resource": _name(step.resources),
        "files": [{"path": "/tmp/run.sh", "contents": _script(flow, step, needs)}],
    }
    task["files"] += [
        {"path": f"/tmp/files/{Path(path).name}", "localpath": f"files/{Path(path).name}"} for path in step.files
    ]
    if needs:
        task["inputs"] = [{"task": name} for name in needs]
    if step.secrets:
        task["credentials"] = {CREDENTIAL: {VARIABLE: PAYLOAD}}
    return task


def _script(flow: Flow, step: Step, needs: list[str]) -> str:
    lines = ["set -eu", f"mkdir -p {WORK} && cd {WORK}"]
    for place, name in enumerate(needs):
        if flow[name].outputs:
            lines.append(f"cp -a {{{{input:{place}}}}}/. .")
    for path in step.files:
        lines.append(f"mkdir -p {shlex.quote(str(Path(path).parent))}")
        lines.append(f"cp {shlex.quote(f'/tmp/files/{Path(path).name}')} {shlex.quote(path)}")
    for path in step.secrets:
        lines.append(f"mkdir -p {shlex.quote(str(Path(path).parent))}")
        lines.append(f"(umask 077 && printf '%s\\n' \"${VARIABLE}\" > {shlex.quote(path)})")
    lines += body(flow, step)
    lines += [f"cp -a --parents {shlex.quote(output.path)} {{{{output}}}}/" for output in step.outputs.values()]
    return "\n".join(lines) + "\n"


def _dumper() -> type:
    import yaml

    class Dumper(yaml.SafeDumper):
        """Write a text of several lines as a block, as a person would."""

    def write(dumper: Any, text: str) -> Any:
        return dumper.represent_scalar("tag:yaml.org,2002:str", text, style="|" if "\n" in text else None)

    Dumper.add_representer(str, write)
    return Dumper
