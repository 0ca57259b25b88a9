"""The stages of a control step as text: act, after-physics, observe (and startup), one call a term."""

from __future__ import annotations

import math
from itertools import groupby

from robot_rl_envs import engine
from robot_rl_envs.entity import crews, derive
from robot_rl_envs.entity.scene import Scene
from robot_rl_envs.fuse.actuating import write_delay_draw, write_jitter
from robot_rl_envs.fuse.layout import LOG_EPISODES, LOG_FAULTS, LOG_LENGTH, LOG_RETURN, LOG_STEPS, Writer, message_sizes
from robot_rl_envs.fuse.observing import GROUP
from robot_rl_envs.task import Event, Task, TorchTerm

_DIRTY = {"nothing": 0}
_DIRTY |= {kind: getattr(engine, f"DIRTY_{kind.upper()}") for kind in ("state", "velocity", "model", "wrench")}


def _write_event(w: Writer, name: str, term: Event, indent: int) -> None:
    """Call an event and note what it wrote; its random stream is open."""
    bits = _DIRTY[term.info.writes] | (engine.DIRTY_CONST if term.info.set_const else 0)
    w.add(indent, w.call(f"events.{name}", term, "s, i, rng"), f"s.dirty[i] = s.dirty[i] | {bits}")


def write_clip(w: Writer, scene: Scene, task: Task) -> str:
    """Declare the bounds of actions, and return the text of that of action j: the task's, or each action's own.

    Own bounds are those of a robot with joints that are driven by their speed, see `Scene.max_action`.
    """
    clip = w.layout.param("actions.clip", task.actions.clip)
    driven = [joint for joint in scene.robot.joints if not joint.passive]
    if task.actions.kind != "position" or not any(joint.by_speed for joint in driven):
        return clip
    for joint in driven:
        w.layout.param(f"actions.max_action.{joint.name}", scene.max_action(joint))
    return f"p[{w.layout.params[f'actions.max_action.{driven[0].name}']} + j]"


def write_act(w: Writer, scene: Scene, task: Task) -> None:
    """Write the stage that turns actions into controls."""
    clip = write_clip(w, scene, task)
    w.add(0, "def act(")
    w.add(1, "s: SceneState, f: Flight, numbers: Numbers, actions: wp.array2d(dtype=wp.float32), first: int")
    w.add(0, "):")
    w.add(
        1, "i = first + wp.tid()", "p = numbers.params", "record_start(s, f, i)", "s.dirty[i] = 0", "s.overflow[i] = 0"
    )
    for name, term in task.rewards.items():
        if not isinstance(term, TorchTerm) and term.info.before is not None:
            w.add(1, w.call(f"rewards.{name}", term, "s, i", term.info.before))
    for name, term in task.curricula.items():
        if term.info.before is not None:
            w.add(1, w.call(f"curricula.{name}", term, "s, i", term.info.before, "before"))
    driven = [joint for joint in scene.robot.joints if not joint.passive]
    for joint in driven:
        for part, value in zip(("offset", "scale"), scene.action_map(joint), strict=True):
            w.layout.param(f"actions.{part}.{joint.name}", value)
    at = w.layout.params[f"actions.offset.{driven[0].name}"] if driven else 0
    output = "joint_target" if task.actions.actuator.explicit else "ctrl"
    is_around = task.actions.around == "command"
    commanded = list(task.command_components)
    errors = {joint.name: scene.max_error(joint) for joint in driven} if task.actions.limit_speed else {}
    for name, error in errors.items():
        w.layout.param(f"actions.max_error.{name}", math.inf if error is None else error)
    first = w.layout.params[f"actions.max_error.{driven[0].name}"] if errors else 0
    shifts = [
        (
            commanded.index(joint.name) - j if is_around else 0,
            scene.robot.joint_names.index(joint.name) - j if errors else 0,
        )
        for j, joint in enumerate(driven)
    ]
    # Loops: a humanoid's joints one by one took as long to compile as all its rewards.
    for (shift, among), run in groupby(range(len(driven)), key=shifts.__getitem__):
        columns = list(run)
        w.add(1, f"for j in range({columns[0]}, {columns[-1] + 1}):")
        w.add(2, "s.prev_prev_action[i, j] = s.prev_action[i, j]", "s.prev_action[i, j] = s.action[i, j]")
        # clamp makes a bound of NaN: what is not finite is kept, for the world to be quarantined
        w.add(
            2, f"kept = wp.where(wp.isfinite(actions[i, j]), wp.clamp(actions[i, j], -{clip}, {clip}), actions[i, j])"
        )
        around = f" + s.command[i][j + {shift}]" if is_around else ""
        target = f"p[{at} + 2 * j] + p[{at + 1} + 2 * j] * kept{around}"
        if errors:
            w.add(2, f"pos = s.qpos[i, s.joint_qpos[j + {among}]]", f"most = p[{first} + j]", f"target = {target}")
            target = "wp.where(wp.isfinite(target), wp.clamp(target, pos - most, pos + most), target)"
        w.add(2, "s.action[i, j] = kept", f"s.{output}[i, j] = {target}")
        if output == "ctrl":
            w.add(2, "record_control(s, f, i, 0, j)")
    if scene.crew is not None:
        w.add(1, "if s.active[i] == 0:")
        w.run(2, crews.let_go, f"s, i, s.{output}, {int(task.actions.kind == 'position')}")
        for k, joint in enumerate(driven):
            if joint.by_speed:
                w.add(2, f"s.{output}[i, {k}] = 0.0")
    w.add(1, "record_action(s, f, i)")


def _write_terminations(w: Writer, task: Task) -> None:
    limit = w.layout.param("episode_length_s", task.episode_length_s)
    w.add(1, "terminated = int(0)", "time_out = int(0)", "held = int(0)")
    w.add(1, f"if float(s.episode_length[i]) * s.step_dt >= {limit} - 0.5 * s.step_dt:")
    w.add(2, "time_out = 1", f"wp.atomic_add(log, {w.layout.log['termination/time_limit']}, wp.float64(1.0))")
    for k, (name, term) in enumerate(task.terminations.items()):
        if isinstance(term, TorchTerm):
            continue
        w.add(1, f"if {w.call(f'terminations.{name}', term, 's, i')} != 0:")
        if w.crew is not None and not term.time_out:
            w.add(2, "terminated = 1" if term.scope == "robot" else "ends = ends | 1")
        else:
            w.add(2, "time_out = 1" if term.time_out else "terminated = 1")
        w.add(2, f"held = held | {1 << k}")
        w.add(2, f"wp.atomic_add(log, {w.layout.log[f'termination/{name}']}, wp.float64(1.0))")
    w.add(1, "s.termination_bits[i] = held")


def _clear_parts(w: Writer, indent: int) -> None:
    """Clear the sums of the reward groups, which are never floored: a group of penalties would be nothing."""
    for k in range(len(w.layout.reward_groups)):
        w.add(indent, f"s.reward_parts[i, {k}] = 0.0")


def _write_rewards(w: Writer, task: Task) -> None:
    # With torch terms the sum is not complete here: the environment floors it and adds it to the episode's.
    # In a team the others' part is not known yet: the team's stage does so.
    complete = w.crew is None and not any(isinstance(term, TorchTerm) for term in task.rewards.values())
    w.add(1, "total = float(0.0)")
    if w.crew is not None:
        w.add(1, "s.shared_reward[i, 0] = 0.0", "s.shared_reward[i, 1] = 0.0")
    groups = w.layout.reward_groups
    _clear_parts(w, 1)
    for k, name in enumerate(w.layout.rewards):
        term = task.rewards[name]
        if isinstance(term, TorchTerm):
            continue
        weight = w.layout.param(f"rewards.{name}.weight", term.weight)
        w.add(1, f"r = {weight} * {w.call(f'rewards.{name}', term, 's, i')} * s.step_dt", "if not wp.isfinite(r):")
        w.add(2, "if faults == 0:")
        w.add(3, f"faults = faults | {engine.FAULT_REWARD}", f"s.fault_term[i] = {k}")
        w.add(2, "r = 0.0")
        total = "total"
        if w.crew is not None and term.credit != "robot":
            total = f"s.shared_reward[i, {int(term.credit == 'team')}]"
        w.add(1, f"s.episode_sums[i, {k}] = s.episode_sums[i, {k}] + r", f"{total} = {total} + r")
        if groups:
            part = f"s.reward_parts[i, {groups.index(term.group)}]"
            w.add(1, f"{part} = {part} + r")
    if task.only_positive_rewards and complete:
        w.add(1, "total = wp.max(total, 0.0)")
    w.add(1, "if faults != 0:")
    w.add(2, "total = 0.0")
    _clear_parts(w, 2)
    w.add(2, "terminated = 1")
    w.add(1, "if terminated == 1:")
    w.add(2, "time_out = 0")
    w.add(1, "s.quarantined[i] = faults", "s.reward[i] = total")
    if complete:
        w.add(1, "s.episode_return[i] = s.episode_return[i] + total")
    w.add(1, "s.terminated[i] = terminated", "s.time_out[i] = time_out")
    if w.crew is not None:
        w.add(1, "s.ends[i] = wp.where(time_out == 1, ends | 2, ends)")


def _write_commands(w: Writer, task: Task, indent: int, *, timed: bool) -> None:
    for k, (name, term) in enumerate(task.commands.items()):
        path = f"commands.{name}"
        if timed:
            w.add(indent, f"s.command_left_s[i, {k}] = s.command_left_s[i, {k}] - s.step_dt")
        condition = f"s.command_left_s[i, {k}] <= 0.0 and s.command_hold[i] == 0" if timed else "s.command_hold[i] == 0"
        lo, hi = (w.layout.param(f"{path}.resample_s.{n}", v) for n, v in enumerate(term.resample_s))
        if w.crew is not None and term.team and not timed:
            condition += " and s.joining[i] == 0"
        w.add(indent, f"if {condition}:")
        w.rng(indent + 1, path, team=term.team)
        w.add(indent + 1, f"s.command_left_s[i, {k}] = {lo} + ({hi} - {lo}) * wp.randf(rng)")
        w.add(indent + 1, w.call(path, term, "s, i, rng"))
        if term.info.update is not None:
            w.add(indent, "if s.command_hold[i] == 0:")
            w.add(indent + 1, w.call(path, term, "s, i", term.info.update))


def _write_updates(w: Writer, task: Task) -> None:
    """Write what events and curricula do in every step."""
    for section, terms in (("curricula", task.curricula), ("events", task.events)):
        for name, term in terms.items():
            if term.info.update is not None:
                w.add(1, w.call(f"{section}.{name}", term, "s, i", term.info.update))


def _write_interval_events(w: Writer, task: Task) -> None:
    for k, name in enumerate(w.layout.intervals):
        term = task.events[name]
        path = f"events.{name}"
        lo, hi = (w.layout.param(f"{path}.interval_s.{n}", v) for n, v in enumerate(term.interval_s))
        w.add(1, f"s.interval_left_s[i, {k}] = s.interval_left_s[i, {k}] - s.step_dt")
        w.add(1, f"if s.interval_left_s[i, {k}] <= 0.0:")
        w.rng(2, path, team=term.team)
        w.add(2, f"s.interval_left_s[i, {k}] = {lo} + ({hi} - {lo}) * wp.randf(rng)")
        _write_event(w, name, term, 2)


def _write_derive(w: Writer, indent: int, scene: Scene) -> None:
    """Write what follows from qpos and qvel: the robot's, the objects', the sites'."""
    if scene.crew is not None and not scene.base:
        w.run(indent, crews.derive_mount)
    w.add(indent, "derive(s, c, i)")
    if scene.objects:
        w.run(indent, derive.derive_objects)
    if scene.things.joints:
        w.run(indent, derive.derive_object_joints)
    if scene.things.sites:
        is_mounted = scene.crew is not None and not scene.base
        w.run(indent, crews.derive_mounted_sites if is_mounted else derive.derive_sites, "s, c, i")
    if scene.things.has_object_sites:
        w.run(indent, derive.derive_object_sites, "s, c, i")


def write_after(w: Writer, scene: Scene, task: Task) -> None:
    """Write the stage after the physics: terminations, rewards, metrics, commands, interval events.

    In a team a stage of its own comes before it, ``sense``: what a robot's terms read of the others must be that of
    this step for all of them.
    """
    parameters = "s: SceneState, f: Flight, c: Chain, numbers: Numbers, first: int"
    w.add(0, f"def {'after_physics' if scene.crew is None else 'sense'}(")
    w.add(1, parameters)
    w.add(0, "):")
    w.add(1, "i = first + wp.tid()", "p = numbers.params", "log = numbers.log")
    for name in ("counter", "step_count", "episode_length"):
        w.add(1, f"s.{name}[i] = s.{name}[i] + 1")
    w.add(1, "s.fault_term[i] = -1", "faults = world_faults(s, i)", "if faults != 0:")
    w.add(2, "record_end(s, f, i)", "park_world(s, i)")
    for function in scene.sensing.functions("before"):
        w.run(1, function)
    _write_derive(w, 1, scene)
    w.add(1, "update_contacts(s, c, i)")
    if scene.contacts:
        w.run(1, derive.read_contact_sensors)
    for function in scene.sensing.functions("update"):
        w.run(1, function)
    if scene.crew is not None:
        w.run(1, crews.begin_robot, "s, i, faults")
        w.run(1, crews.publish)
        w.add(0, "def after_physics(")
        w.add(1, parameters)
        w.add(0, "):")
        w.add(1, "i = first + wp.tid()", "p = numbers.params", "log = numbers.log")
        w.add(1, "faults = s.quarantined[i]", "ends = int(0)")
    with w.inside("" if scene.crew is None else "s.active[i] == 1"):
        _write_terminations(w, task)
        _write_rewards(w, task)
        w.add(1, "if faults == 0:")
        w.add(2, f"wp.atomic_add(log, {LOG_STEPS}, wp.float64(1.0))")
        for k, (name, term) in enumerate(task.metrics.items()):
            index = w.layout.log[f"tracking/{name}"]
            w.add(2, f"m{k} = float({w.call(f'metrics.{name}', term, 's, i')})")
            w.add(2, f"wp.atomic_add(log, {index}, wp.float64(m{k}))", f"s.metric_values[i, {k}] = m{k}")
    w.add(1, "for j in range(s.joint_vel.shape[1]):")
    w.add(2, "s.last_joint_vel[i, j] = s.joint_vel[i, j]")
    _write_updates(w, task)
    _write_commands(w, task, 1, timed=True)
    _write_interval_events(w, task)
    _write_messages(w, scene, task, 1)
    write_jitter(w, task, 1)


def write_observe(w: Writer, scene: Scene, task: Task, fields: list[str]) -> None:
    """Write the stage that observes, ends episodes and resets worlds.

    A world is observed in the state that the step left it in and, where its episode ended, again where the next one
    begins. Both go through one loop: the functions of the groups, most of the kernel's text, are inlined once.
    """
    groups = list(task.vectors)
    w.add(0, "def observe(")
    w.add(1, "s: SceneState, f: Flight, c: Chain, numbers: Numbers, first: int, initial: int,")
    for kind in ("out", "final"):
        w.add(1, " ".join(f"{kind}_{name}: wp.array2d(dtype=wp.float32)," for name in groups))
    w.add(0, "):")
    w.add(1, "i = first + wp.tid()", "p = numbers.params", "log = numbers.log", "code = int(1)", "good = int(1)")
    w.add(1, "done = wp.max(s.terminated[i], s.time_out[i])")
    # A world without a state to observe, or without an episode that ended, begins with the reset.
    begins = "done == 1 and (initial == 1 or s.quarantined[i] != 0)"
    if scene.crew is not None:
        w.add(1, "restart = wp.max(s.restart[i], s.joining[i])")
        begins = "restart == 1 and (initial == 1 or done == 0 or s.quarantined[i] != 0)"
    w.add(1, "fresh = int(0)", f"if {begins}:", "    fresh = 1")
    w.add(1, "looking = int(1)", "while looking == 1:")
    w.add(2, "if fresh == 1:")
    # The episode of a robot that dropped out has ended before.
    w.add(3, "if initial == 0:" if scene.crew is None else "if initial == 0 and s.acted[i] == 1:")
    _write_quarantine(w, scene, groups, fields)
    _write_end_of_episode(w, task)
    _write_reset(w, scene, task)
    w.add(2, f"if fresh == 1 or (done == 0 and (s.dirty[i] & {engine.DIRTY_VELOCITY}) != 0):")
    _write_derive(w, 3, scene)
    w.add(2, "if fresh == 1:", "    looking = 0")
    for function in scene.sensing.functions("reset"):
        w.run(3, function)
    _write_commands(w, task, 3, timed=False)
    if scene.crew is not None:
        _write_unseen(w, 3, groups)
    if scene.looks_again:
        # The engine has to look at the world where it starts before it can be observed there.
        w.add(3, "break")
    for name in groups:
        w.add(2, f"to_{name} = wp.where(done == 1 and fresh == 0, final_{name}, out_{name})")
        w.add(2, f"code = {GROUP}{name}(s, i, p, fresh, out_{name}, to_{name})", "if good == 1:", "    good = code")
    w.add(2, "if fresh == 0:")
    w.add(3, "if good != 1:")
    if scene.crew is None:
        _write_blind(w, 4)
        w.add(4, "done = 1")
        w.add(3, "fresh = done", "looking = done")
    else:
        _write_end_of_robot(w, task, groups)
    if scene.looks_again:
        _write_observe_reset(w, scene, groups)


def _write_end_of_robot(w: Writer, task: Task, groups: list[str]) -> None:
    """Write what follows from a robot's observation in a team: its world is not its own to end."""
    w.add(4, "s.blind[i] = wp.where(restart == 1, 0, 1 - good)", f"s.quarantined[i] = {engine.FAULT_OBSERVATION}")
    w.add(3, "fresh = restart", "looking = restart")
    w.add(3, "if restart == 0 and (done == 1 or s.active[i] == 0 or good != 1):")
    _write_unseen(w, 4, groups)
    w.add(3, "if done == 1 and restart == 0:")
    w.add(4, "if s.acted[i] == 1:")
    with w.deeper(1):
        _write_end_of_episode(w, task)
    w.run(4, crews.end_robot)


def _write_unseen(w: Writer, indent: int, groups: list[str]) -> None:
    for name in groups:
        w.add(indent, f"for j in range(out_{name}.shape[1]):", f"    out_{name}[i, j] = 0.0")


def _write_observe_reset(w: Writer, scene: Scene, groups: list[str]) -> None:
    """Write the stage that observes worlds, or robots of a team, where an episode begins."""
    w.add(0, "def observe_reset(s: SceneState, numbers: Numbers, first: int,")
    w.add(1, " ".join(f"out_{name}: wp.array2d(dtype=wp.float32)," for name in groups))
    w.add(0, "):")
    is_fresh = "wp.max(s.terminated[i], s.time_out[i]) == 1"
    if scene.crew is not None:
        is_fresh = "wp.max(s.restart[i], s.joining[i]) == 1 and s.active[i] == 1"
    w.add(1, "i = first + wp.tid()", "p = numbers.params", f"if {is_fresh}:")
    for name in groups:
        w.add(2, f"good = {GROUP}{name}(s, i, p, 1, out_{name}, out_{name})")


def _write_blind(w: Writer, indent: int) -> None:
    """End a world because an observation is not finite: nothing of this step counts."""
    w.add(indent, "s.terminated[i] = 1", "s.time_out[i] = 0")
    w.add(indent, f"s.quarantined[i] = s.quarantined[i] | {engine.FAULT_OBSERVATION}", "s.fault_term[i] = -good")
    w.add(indent, "s.episode_return[i] = s.episode_return[i] - s.reward[i]", "s.reward[i] = 0.0")
    _clear_parts(w, indent)


def _write_quarantine(w: Writer, scene: Scene, groups: list[str], fields: list[str]) -> None:
    """Count a quarantined world before its reset and copy its last moments."""
    w.add(4, "if s.quarantined[i] != 0:")
    for name in groups:
        w.add(5, f"for j in range(final_{name}.shape[1]):")
        w.add(6, f"final_{name}[i, j] = 0.0")
    w.add(5, f"wp.atomic_add(log, {LOG_FAULTS} + reason_of(s.quarantined[i]), wp.float64(1.0))")
    if scene.crew is None:
        w.add(5, "slot = dump(s, f, i, first)", "if slot >= 0:")
    else:  # Only of the robot that has the fault, not of the others in its world.
        w.add(5, "slot = int(-1)", f"if (s.quarantined[i] & {engine.FAULT_OTHERS}) == 0:")
        w.add(6, "slot = dump(s, f, i, first)")
        w.add(5, "if slot >= 0:")
    w.add(6, "at = int(0)")
    for name in fields:
        w.add(6, f"for j in range(s.{name}.shape[1]):")
        w.add(7, f"for k in range(s.{name}.shape[2]):")
        w.add(8, f"f.models[slot, at] = s.{name}[i, j, k]", "at = at + 1")


def _write_end_of_episode(w: Writer, task: Task) -> None:
    """Log the episode's sums and run the curricula."""
    if task.curricula:
        w.add(4, "if s.quarantined[i] == 0:")
    for name, term in task.curricula.items():
        w.rng(5, f"curricula.{name}")
        w.add(5, w.call(f"curricula.{name}", term, "s, i, rng"))
    w.add(4, f"wp.atomic_add(log, {LOG_EPISODES}, wp.float64(1.0))")
    w.add(4, f"wp.atomic_add(log, {LOG_RETURN}, wp.float64(s.episode_return[i]))")
    w.add(4, f"wp.atomic_add(log, {LOG_LENGTH}, wp.float64(float(s.step_count[i]) * s.step_dt))")
    for k, name in enumerate(w.layout.rewards):
        w.add(4, f"wp.atomic_add(log, {w.layout.log[f'reward/{name}']}, wp.float64(s.episode_sums[i, {k}]))")


def _write_reset(w: Writer, scene: Scene, task: Task) -> None:
    """Write the default pose at the world's origin, then the reset events."""
    crew = scene.crew
    if crew is not None:
        w.rng(3, "team", team=True)
        lo, hi = crew.team.size if crew.team.varies else (len(crew.names),) * 2
        w.run(3, crews.start_robot, f"s, i, rng, {lo}, {hi}")
        if crew.team.joins > 0:
            first, last = (w.layout.param(f"team.join_s.{n}", value) for n, value in enumerate(crew.team.join_s))
            w.rng(3, "team.join")
            share = w.layout.param("team.joins", crew.team.joins)
            w.run(3, crews.draw_join, f"s, i, rng, {share}, {first}, {last}")
        w.add(3, "age = s.episode_length[i]")
    w.add(3, f"s.dirty[i] = s.dirty[i] | {engine.DIRTY_STATE}", "for k in range(s.qpos.shape[1]):")
    w.add(4, "s.qpos[i, k] = s.default_qpos[k]")
    w.add(3, "for k in range(s.qvel.shape[1]):")
    w.add(4, "s.qvel[i, k] = 0.0")
    if task.terrain is not None and scene.base:
        w.add(3, "place_on_terrain(s, i)")
        if scene.objects:
            w.run(3, derive.place_objects_on_terrain)
    if any(term.info.writes == "wrench" for term in task.events.values()):
        w.run(3, derive.clear_wrench)
    for name, term in task.events.items():
        if term.mode == "reset":
            is_shared = crew is not None and term.team
            if is_shared:
                w.add(3, "if s.joining[i] == 0:")
            w.rng(3 + is_shared, f"events.{name}", team=term.team)
            _write_event(w, name, term, 3 + is_shared)
    if crew is not None and scene.base:
        w.run(3, crews.place_robot)
    if scene.entity.joint_follows[:, 0].max() >= 0:
        w.run(3, derive.couple_joints)
    write_delay_draw(w, task, 3)
    scene.sensing.write_draws(w)
    w.add(3, "clear_world(s, i)")
    if crew is not None:
        w.run(3, crews.finish_robot, "s, i, age")
    if scene.contacts:
        w.run(3, derive.clear_contact_sensors)


def write_startup(w: Writer, task: Task) -> None:
    """Write what happens once, before the first reset."""
    w.add(0, "def startup(s: SceneState, numbers: Numbers, first: int):")
    w.add(1, "i = first + wp.tid()", "p = numbers.params")
    if task.terrain is not None:
        # Kinds in turn, so that every column has its worlds; rows of the easier part, where there are easier ones.
        rows = task.terrain.init_levels if task.terrain.curriculum else task.terrain.num_rows
        w.rng(1, "terrain.level")
        w.add(1, f"s.terrain_level[i] = int(wp.randf(rng) * {float(rows)})")
        w.add(1, "s.terrain_column[i] = (i + s.world_offset) % s.terrain_origins.shape[1]")
    for k, name in enumerate(w.layout.intervals):
        lo, hi = (
            w.layout.param(f"events.{name}.interval_s.{n}", v) for n, v in enumerate(task.events[name].interval_s)
        )
        w.rng(1, f"events.{name}.first", team=task.events[name].team)
        w.add(1, f"s.interval_left_s[i, {k}] = {lo} + ({hi} - {lo}) * wp.randf(rng)")
    for name, term in task.events.items():
        if term.mode == "startup":
            w.rng(1, f"events.{name}", team=term.team)
            _write_event(w, name, term, 1)


def _write_messages(w: Writer, scene: Scene, task: Task, indent: int) -> None:
    """Write the values of the robot's messages where the others read them; what is not finite is sent as 0."""
    at = 0
    for name, sizes in message_sizes(task, scene).items():
        for part, size in sizes.items():
            term = task.messages[name].terms[part]
            w.add(indent, f"for j in range({size}):")
            w.add(indent + 1, f"v = {w.call(f'messages.{name}.terms.{part}', term, 's, i, j')}")
            w.functions |= {"world_of": crews.world_of, "agent_of": crews.agent_of}
            w.add(
                indent + 1, f"s.messages[world_of(s, i), agent_of(s, i), {at} + j] = wp.where(wp.isfinite(v), v, 0.0)"
            )
            at += size


def write_share(w: Writer, scene: Scene, task: Task) -> None:
    """Write the stage in which the robots that were placed by a reset show themselves to the others."""
    w.add(0, "def share(s: SceneState, c: Chain, numbers: Numbers, first: int):")
    w.add(1, "i = first + wp.tid()", "p = numbers.params", "if s.joining[i] == 1:")
    _write_derive(w, 2, scene)  # of the objects as they are, not as they would be in a new episode
    w.add(1, "if wp.max(s.restart[i], s.joining[i]) == 1:")
    w.run(2, crews.publish)
    _write_messages(w, scene, task, 2)
