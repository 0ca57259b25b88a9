"""From a robot's log to a policy for it: identify, train with the identified joints, certify, package.

    identify -> gate -> train -> ... -> certify -> gates -> package

After the identification, the steps are those of three_computers, with a certificate that is compared with the robot.
"""

from __future__ import annotations

import dataclasses

from robot_rl_envs.measured import REPLACED
from robot_rl_tasks.registry import get_task

from robot_rl.cluster.flow.dag import BELOW, Flow, FlowCfg, Gate, Output, Resources, Step, gate_step
from robot_rl.cluster.flow.flows import three_computers
from robot_rl.errors import UserError

CERTIFY = 1000
"""Episodes of the certificate by default."""
HELD_OUT_RAD = 0.01
"""Largest error of the joints' positions in the log that was held out [rad]."""


def make_flow(cfg: FlowCfg) -> Flow:
    """Build the flow of a task and logs of its robot; raise UserError if they do not fit."""
    if not cfg.log:
        raise UserError("log: is missing; name the logs of the robot, such as log=a.mcap,b.mcap")
    if any(word.startswith("randomize.identified_from") for word in cfg.train):
        raise UserError("train.randomize.identified_from: is set by the flow; omit it")
    flow = three_computers.make_flow(dataclasses.replace(cfg, log=(), held="", certify=cfg.certify or CERTIFY))
    identify = identify_step(cfg)
    text = "error of positions in the log that was held out [rad]"
    gate = gate_step(
        identify,
        "identified",
        [Gate(name="held_out", path="errors.held.after.q", bound=HELD_OUT_RAD, op=BELOW, text=text)],
    )
    # The identified joints have their own events instead of these.
    gone = tuple(f"events.{name}." for name, event in get_task(cfg.task).events.items() if event.info.name in REPLACED)
    more = {
        "train": (f"randomize.identified_from={identify['identified']}",),
        "certify": (f"identified={identify['identified']}",),
    }
    steps = [
        dataclasses.replace(
            step,
            command=(*(word for word in step.command if not word.startswith(gone)), *more.get(step.name, ())),
            after=(*step.after, gate.name) if step.name == "train" else step.after,
        )
        for step in flow.steps
    ]
    links = {**flow.links, "identification": f"{cfg.folder}/robot.identified.html"}
    return dataclasses.replace(flow, name="real_to_sim", steps=(identify, gate, *steps), links=links)


def identify_step(cfg: FlowCfg) -> Step:
    """Return the step that identifies the robot from its logs, for the task's timestep."""
    held = (f"held={cfg.held}",) if cfg.held else ()
    words = ("robot-rl", "identify", *cfg.log, *held, f"robot={get_task(cfg.task).robot.name}", f"task={cfg.task}")
    return Step(
        name="identify",
        command=(*words, "out=@{identify.identified}"),
        outputs={"identified": Output(path=f"{cfg.folder}/robot.identified.json")},
        resources=Resources(),
        files=(*cfg.log, *((cfg.held,) if cfg.held else ())),
    )
