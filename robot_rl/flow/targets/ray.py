"""A flow for a Ray cluster: a script for each step, and a driver that submits them as jobs in the order of the graph.

The steps share a directory that all nodes see, which the driver is given.
"""

from __future__ import annotations

import json
from pathlib import Path

from robot_rl.flow.dag import Flow
from robot_rl.flow.targets.shell import ClusterCfg, body, check_paths, numbered

DIRECTORY = "ROBOT_RL_DIRECTORY"
HEAD = f'#!/bin/bash\nset -eu\ncd "${{{DIRECTORY}:?the directory of the runs, which all nodes see}}"\n'


def manifests(flow: Flow, cfg: ClusterCfg, folder: str) -> dict[str, str]:
    """Return file -> content of a flow for Ray; `folder` is that of the flow's own files."""
    check_paths(flow, "ray")
    names = numbered(flow)
    files = {names[step.name]: HEAD + "\n".join(body(flow, step)) + "\n" for step in flow.order()}
    steps = []
    for step in flow.order():
        platform = cfg.platforms.get(step.resources.computer)
        needs = {"cpus": step.resources.cpus, "gpus": step.resources.gpus}
        needs |= {"memory": step.resources.memory_gb * 2**30, "resources": {platform: 0.001} if platform else {}}
        steps.append({"name": step.name, "after": list(step.needs()), "script": names[step.name], **needs})
    graph = json.dumps({"name": flow.name, "id": flow.id, "steps": steps}, indent=2)
    driver = (Path(__file__).parent / "ray_driver.py").read_text()
    return {**files, "graph.json": graph + "\n", "submit.py": driver}
