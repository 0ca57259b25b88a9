"""The values in the slots of `step_kernels.py.txt`, the source of a control step's kernels.

Terms get their names and parameters their indices in the order in which the functions here are called.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from itertools import groupby
from typing import Any

from robot_rl_envs import engine
from robot_rl_envs.codegen import actuating, layout
from robot_rl_envs.codegen.layout import message_sizes
from robot_rl_envs.codegen.observing import fill_group
from robot_rl_envs.codegen.template import STEP
from robot_rl_envs.codegen.writer import KernelWriter
from robot_rl_envs.entity.scene import Scene
from robot_rl_envs.task import Event, Task, TorchTerm

Values = dict[str, Any]
CONSTANTS = {
    name: value
    for module, prefixes in ((engine, ("DIRTY_", "FAULT_")), (layout, ("LOG_",)))
    for name, value in vars(module).items()
    if name.startswith(prefixes)
}
_DIRTY = {"nothing": 0}
_DIRTY |= {kind: getattr(engine, f"DIRTY_{kind.upper()}") for kind in ("state", "velocity", "model", "wrench")}


def fill_step(w: KernelWriter, scene: Scene, task: Task, drive: actuating.Drive, fields: list[str]) -> str:
    """Return the source of a task's kernels; ``fields`` are the randomized model fields of ``s``."""
    values = CONSTANTS | scene_values(scene, task) | sensor_values(w, scene)
    values |= action_values(w, scene, task)
    values |= outcome_values(w, task)
    values |= {
        "updates": w.calls("curricula", task.curricula, "update") + w.calls("events", task.events, "update"),
        "commands": fill_commands(w, task, in_episode=True),
        "interval_events": fill_events(w, task, "interval"),
        "messages": fill_messages(w, scene, task),
    }
    values |= actuating.step_delay_values(w, task)
    values |= group_values(w, task, fields)
    values |= reset_values(w, scene, task)
    values |= {"first_commands": fill_commands(w, task, in_episode=False)}
    values |= startup_values(w, task)
    return STEP.fill("step", values | drive.values())


def scene_values(scene: Scene, task: Task) -> Values:
    """Return the conditions that depend on the scene."""
    things, crew = scene.elements, scene.crew
    return {
        "team": crew is not None,
        "base": bool(scene.base),
        "mounted": crew is not None and not scene.base,
        "objects": bool(scene.objects),
        "object_joints": bool(things.joints),
        "sites": bool(things.sites),
        "object_sites": things.has_object_sites,
        "contacts": bool(scene.contacts),
        "coupled_joints": scene.entity.joint_follows[:, 0].max() >= 0,
        "terrain": task.terrain is not None,
        "wrench": any(term.info.writes == "wrench" for term in task.events.values()),
        "needs_reset_forward": scene.needs_reset_forward,
        "joins": crew is not None and crew.team.joins > 0,
    }


def sensor_values(w: KernelWriter, scene: Scene) -> Values:
    """Return the lines of the sensors that terms read: before and after the state is derived, and at a reset."""
    return {f"sensors_{when}": w.runs(scene.sensing.functions(when)) for when in ("before", "update", "reset")}


def action_clip(w: KernelWriter, scene: Scene, task: Task) -> str:
    """Reserve the bounds of actions, and return the expression of that of action j: the task's, or each action's own.

    A robot with joints that are driven by their speed has a bound for each action, see `Scene.max_action`.
    """
    clip = w.layout.param("actions.clip", task.actions.clip)
    driven = [joint for joint in scene.robot.joints if not joint.passive]
    if task.actions.kind != "position" or not any(joint.by_speed for joint in driven):
        return clip
    for joint in driven:
        w.layout.param(f"actions.max_action.{joint.name}", scene.max_action(joint))
    return f"p[{w.layout.params[f'actions.max_action.{driven[0].name}']} + j]"


def action_values(w: KernelWriter, scene: Scene, task: Task) -> Values:
    """Return the slots of the kernel that turns actions into controls."""
    actions, params = task.actions, w.layout.params
    values = {
        "clip": action_clip(w, scene, task),
        "control": "joint_target" if actions.actuator.explicit else "ctrl",
        "is_position": int(actions.kind == "position"),
        "limits_speed": actions.limit_speed > 0,
        "explicit": actions.actuator.explicit,
    }
    values["terms_before_step"] = w.calls("rewards", task.rewards, "before")
    values["terms_before_step"] += w.calls("curricula", task.curricula, "before", "before")
    driven = [joint for joint in scene.robot.joints if not joint.passive]
    for joint in driven:
        for part, value in zip(("offset", "scale"), scene.action_map(joint), strict=True):
            w.layout.param(f"actions.{part}.{joint.name}", value)
    if actions.limit_speed:
        for joint in driven:
            error = scene.max_error(joint)
            w.layout.param(f"actions.max_error.{joint.name}", math.inf if error is None else error)
        values["max_error"] = params[f"actions.max_error.{driven[0].name}"]
    at = params[f"actions.offset.{driven[0].name}"] if driven else 0
    commanded = list(task.command_components)

    def shifts(j: int) -> tuple[int, int]:
        """Distances of a joint's command and of its place among all joints from its action."""
        name = driven[j].name
        command = commanded.index(name) - j if actions.around == "command" else 0
        return command, scene.robot.joint_names.index(name) - j if actions.limit_speed else 0

    loops = []
    for (command_shift, joint_shift), group in groupby(range(len(driven)), key=shifts):
        columns = list(group)
        command = f" + s.command[i][j + {command_shift}]" if actions.around == "command" else ""
        target = f"p[{at} + 2 * j] + p[{at + 1} + 2 * j] * kept{command}"
        loop = {"begin": columns[0], "end": columns[-1] + 1, "joint_shift": joint_shift, "target": target}
        loops.append(values | loop)
    stopped = [values | {"j": j} for j, joint in enumerate(driven) if joint.by_speed]
    return values | {
        "action_loops": STEP.fill_each("action_loop", loops),
        "stopped_joints": STEP.fill_each("stopped_joint", stopped),
    }


def outcome_values(w: KernelWriter, task: Task) -> Values:
    """Return the slots of terminations, rewards and metrics."""
    log, groups, team = w.layout.log, w.layout.reward_groups, w.crew is not None
    values: Values = {
        "episode_length_s": w.layout.param("episode_length_s", task.episode_length_s),
        "time_limit_log": log["termination/time_limit"],
        "reward_parts": STEP.fill_each("reward_part", ({"k": k} for k in range(len(groups)))),
        "floors_reward": task.only_positive_rewards,
        "is_complete": not team and not any(isinstance(term, TorchTerm) for term in task.rewards.values()),
    }
    rows = []
    for k, (name, term) in enumerate(task.terminations.items()):
        if not isinstance(term, TorchTerm):
            ends_team = team and not term.time_out and term.scope != "robot"
            ends = {
                "is_time_out": term.time_out,
                "ends_team": ends_team,
                "ends_robot": not (term.time_out or ends_team),
            }
            call = w.call(f"terminations.{name}", term, "s, i")
            rows.append({"call": call, "bit": 1 << k, "log": log[f"termination/{name}"]} | ends)
    values["terminations"] = STEP.fill_each("termination", rows)
    rows = []
    for k, (name, term) in enumerate(task.rewards.items()):
        if not isinstance(term, TorchTerm):
            shared = team and term.credit != "robot"
            row = {
                "weight": w.layout.param(f"rewards.{name}.weight", term.weight),
                "call": w.call(f"rewards.{name}", term, "s, i"),
                "total": f"s.shared_reward[i, {int(term.credit == 'team')}]" if shared else "total",
                "part": f"s.reward_parts[i, {groups.index(term.group)}]" if groups else "",
            }
            rows.append(CONSTANTS | row | {"k": k})
    values["rewards"] = STEP.fill_each("reward", rows)
    metrics = (
        {"k": k, "call": w.call(f"metrics.{name}", term, "s, i"), "log": log[f"tracking/{name}"]}
        for k, (name, term) in enumerate(task.metrics.items())
    )
    return values | {"metrics": STEP.fill_each("metric", metrics)}


def fill_commands(w: KernelWriter, task: Task, *, in_episode: bool) -> str:
    """Return the draws of commands: at their own times in an episode, or at its start."""
    rows = []
    for k, (name, term) in enumerate(task.commands.items()):
        path, is_due = f"commands.{name}", "s.command_hold[i] == 0"
        if in_episode:
            is_due = f"s.command_left_s[i, {k}] <= 0.0 and {is_due}"
        elif w.crew is not None and term.team:
            is_due += " and s.joining[i] == 0"
        lo, hi = w.params(f"{path}.resample_s", term.resample_s)
        row = {"k": k, "in_episode": in_episode, "is_due": is_due, "lo": lo, "hi": hi}
        row |= {"rng": w.rng(path, team=term.team), "call": w.call(path, term, "s, i, rng")}
        rows.append(row | {"update": w.calls("commands", {name: term}, "update")})
    return STEP.fill_each("command", rows)


def event_values(w: KernelWriter, name: str, event: Event) -> Values:
    """Return the slots of an event."""
    path, values = f"events.{name}", {"has_interval": event.mode == "interval"}
    if event.mode == "interval":
        values |= {"k": w.layout.intervals.index(name)}
        values |= dict(zip(("lo", "hi"), w.params(f"{path}.interval_s", event.interval_s), strict=True))
    return values | {
        "rng": w.rng(path, team=event.team),
        "call": w.call(path, event, "s, i, rng"),
        "dirty": _DIRTY[event.info.writes] | (engine.DIRTY_CONST if event.info.set_const else 0),
        "of_team": w.crew is not None and event.team,
    }


def fill_events(w: KernelWriter, task: Task, mode: str) -> str:
    """Return the source of the events of a mode."""
    section = {"startup": "event", "reset": "reset_event", "interval": "interval_event"}[mode]
    events = {name: event for name, event in task.events.items() if event.mode == mode}
    return STEP.fill_each(section, (event_values(w, name, event) for name, event in events.items()))


def fill_messages(w: KernelWriter, scene: Scene, task: Task) -> str:
    """Return the messages of a robot to the others; a value that is not finite is sent as 0."""
    rows, at = [], 0
    for name, sizes in message_sizes(task, scene).items():
        for part, size in sizes.items():
            term = task.messages[name].terms[part]
            rows.append({"at": at, "size": size, "call": w.call(f"messages.{name}.terms.{part}", term, "s, i, j")})
            at += size
    return STEP.fill_each("message", rows)


def group_values(w: KernelWriter, task: Task, fields: list[str]) -> Values:
    """Return the slots of the observation groups and their arrays."""
    groups = list(task.vectors)
    rows = [{"group": name} for name in groups]
    return {
        "observe_groups": "\n".join(fill_group(w, name, group) for name, group in task.vectors.items()),
        "observe_calls": STEP.fill_each("observe_call", rows),
        "observe_reset_calls": STEP.fill_each("observe_reset_call", rows),
        "out_arrays": array_arguments("out", groups),
        "final_arrays": array_arguments("final", groups),
        "clear_out": STEP.fill_each("clear", ({"array": f"out_{name}"} for name in groups)),
        "clear_final": STEP.fill_each("clear", ({"array": f"final_{name}"} for name in groups)),
        "model_fields": STEP.fill_each("model_field", ({"field": name} for name in fields)),
    }


def array_arguments(kind: str, groups: Iterable[str]) -> str:
    """Return the arguments for an array of each group."""
    return " ".join(f"{kind}_{name}: wp.array2d(dtype=wp.float32)," for name in groups)


def reset_values(w: KernelWriter, scene: Scene, task: Task) -> Values:
    """Return the slots of the end of an episode and the reset of a world."""
    curricula = (
        {"rng": w.rng(path := f"curricula.{name}"), "call": w.call(path, term, "s, i, rng")}
        for name, term in task.curricula.items()
    )
    values: Values = {"curricula": STEP.fill_each("curriculum", curricula)}
    if (crew := scene.crew) is not None:
        values["least_robots"], values["most_robots"] = crew.team.size if crew.team.varies else [len(crew.names)] * 2
        values |= {"team_rng": w.rng("team", team=True), "join_rng": w.rng("team.join")}
        if crew.team.joins > 0:
            values["join_lo"], values["join_hi"] = w.params("team.join_s", crew.team.join_s)
            values["joins"] = w.layout.param("team.joins", crew.team.joins)
    values["reset_events"] = fill_events(w, task, "reset")
    values |= actuating.delay_values(w, task)
    return values | {"sensor_draws": scene.sensing.draws(w)}


def startup_values(w: KernelWriter, task: Task) -> Values:
    """Return the slots of the kernel that runs once, before the first reset."""
    values: Values = {"terrain_rng": w.rng("terrain.level")}
    if task.terrain is not None:
        rows = task.terrain.init_levels if task.terrain.curriculum else task.terrain.num_rows
        values["terrain_rows"] = float(rows)
    intervals = []
    for k, name in enumerate(w.layout.intervals):
        event = task.events[name]
        lo, hi = w.params(f"events.{name}.interval_s", event.interval_s)
        intervals.append({"k": k, "lo": lo, "hi": hi, "rng": w.rng(f"events.{name}.first", team=event.team)})
    values["first_intervals"] = STEP.fill_each("first_interval", intervals)
    return values | {"startup_events": fill_events(w, task, "startup")}
