"""When a fault passed its threshold and when the first damping command went out, by the binary's own clock and log.

The thresholds are computed here again, from the states, messages and steps in the log and from its settings.
"""

import itertools
import json
import math
from dataclasses import dataclass

import robot_rl_runtime as rt

DAMPING, POLICY = 1, 3
MISSED, FOUND = 4, 5
NAMES = {fault.value: fault.name.lower() for fault in rt.Fault}


@dataclass
class Damped:
    """How a fault was answered.

    Attributes:
        fault: What the first damping command calls it.
        after_ms: From the threshold to that command.
        ticks: Writer's ticks that ran in between, that of the command included where it is one.
        active: Commands in between that did not damp.
    """

    fault: str
    after_ms: float
    ticks: int
    active: int


class Log:
    """A log's calls in their order, with its contract and limits."""

    def __init__(self, path, messages):
        from mcap.reader import make_reader

        self.calls = [(topic.removeprefix("/"), message) for topic, message, _ in messages(path)]
        with path.open("rb") as file:
            reader = make_reader(file)
            self.contract = json.loads(next(a.data for a in reader.iter_attachments() if a.name == "contract.json"))
            settings = next(record.metadata for record in reader.iter_metadata() if record.name == "settings")
        self.limits = {name.removeprefix("limits."): float(value) for name, value in settings.items()}
        self.walking = 0
        commands = self.of("command")
        walks = next(i for i, m in enumerate(commands) if m["phase"] == POLICY)
        self.walking = commands[walks - 1]["order"] + 1  # what led to the policy's first command is part of it
        self.first = next(m for m in self.of("command") if m["phase"] == DAMPING)

    def of(self, topic, before=math.inf):
        """Messages of a topic from the policy's first command on."""
        return [m for name, m in self.calls if name == topic and self.walking <= m["order"] < before]

    def threshold(self):
        """When the first fault passed its threshold [ns]."""
        return round(THRESHOLDS.get(NAMES[self.first["fault"]], content_threshold)(self))

    def damped(self, threshold):
        """How the first fault was answered, counted from a time [ns]."""
        fault = NAMES[self.first["fault"]]
        between = [m for m in self.of("command", self.first["order"]) if m["time_ns"] > threshold]
        late = [m for m in (*between, self.first) if not m["from_policy"]]
        after = (self.first["time_ns"] - threshold) / 1e6
        return Damped(fault, after, len(late), sum(m["phase"] != DAMPING for m in between))


def content_threshold(log):
    """Arrival of the first state that breaks a limit."""
    return next(state["receive_time_ns"] for state in log.of("state") if is_wrong(state, log))


def is_wrong(state, log):
    """Whether a state by itself is a fault."""
    limits, joints = log.limits, log.contract["joints"]
    arrays = ("quat_wxyz", "gyro", "acc", "joint_pos", "joint_vel", "joint_effort", "temperature_c")
    if not all(math.isfinite(value) for name in arrays for value in state[name]):
        return True
    w, x, y, z = state["quat_wxyz"]
    cosine = (w * w - x * x - y * y + z * z) / (w * w + x * x + y * y + z * z)
    if math.acos(max(-1.0, min(1.0, cosine))) > limits["tilt_rad"]:
        return True
    for i, joint in enumerate(joints):
        lower = -math.inf if joint["lower"] is None else joint["lower"]
        upper = math.inf if joint["upper"] is None else joint["upper"]
        if not lower <= state["joint_pos"][i] + limits["position_margin"]:
            return True
        if not state["joint_pos"][i] - limits["position_margin"] <= upper:
            return True
        fastest, strongest = joint["velocity_limit"], joint["effort_limit"]
        if fastest is not None and abs(state["joint_vel"][i]) > limits["velocity_factor"] * fastest:
            return True
        if strongest and abs(state["joint_effort"][i]) > limits["effort_factor"] * strongest:
            return True
        if state["temperature_c"][i] > limits["temperature_c"] or state["motor_fault"][i]:
            return True
    return False


def age_threshold(log):
    """The newest state was older than allowed."""
    return log.of("state", log.first["order"])[-1]["receive_time_ns"] + 1e9 * log.limits["state_age_s"]


def frozen_threshold(log):
    """Nothing new had come for longer than allowed."""
    names = ("quat_wxyz", "gyro", "acc", "joint_pos", "joint_vel")
    states = log.of("state", log.first["order"])
    changed = [
        later
        for state, later in itertools.pairwise(states)
        if later["sequence"] != state["sequence"] and any(later[name] != state[name] for name in names)
    ]
    return changed[-1]["time_ns"] + 1e9 * log.limits["state_frozen_s"]


def operator_threshold(log):
    """The operator's last message was older than allowed."""
    return log.of("operator", log.first["order"])[-1]["receive_time_ns"] + 1e9 * log.limits["operator_s"]


def stop_threshold(log):
    """The operator requested damping."""
    return next(m["receive_time_ns"] for m in log.of("operator") if m["request"] == 1)


def commander_threshold(log):
    """A state said that somebody else was obeyed; where states cannot say that, the transport's word counts."""
    mine = log.first["commander"]
    states = [m["receive_time_ns"] for m in log.of("state", log.first["order"]) if m["commander"] not in (0, mine)]
    return states[0] if states else found_threshold(log)


def action_threshold(log):
    """An action was handed over that jumped."""
    steps = log.of("policy", log.first["order"] + 1)
    for step, later in itertools.pairwise(steps):
        jump = max(abs(a - b) for a, b in zip(step["action"], later["action"], strict=True))
        if jump > log.limits["action_rate"]:
            return later["time_ns"]
    raise AssertionError("no action jumps")


def deadline_threshold(log):
    """So many control periods in a row had passed without an action."""
    missed = [m for m in log.of("event", log.first["order"]) if m["kind"] == MISSED]
    steps = log.of("policy", log.first["order"])
    missed = [m for m in missed if not steps or m["order"] > steps[-1]["order"]]
    limit, period = int(log.limits["missed_deadlines"]), 1e9 * log.contract["control_period_s"]
    if len(missed) >= limit:
        return missed[limit - 1]["time_ns"]
    # On a busy machine the command finds it before all are counted: from the first state that had to be answered.
    acted = (steps or log.of("command"))[-1 if steps else 0]["time_ns"]
    return next(m["time_ns"] for m in log.of("state") if m["time_ns"] >= acted + period) + limit * period


def found_threshold(log):
    """Something outside found it."""
    return next(m["time_ns"] for m in log.of("event") if m["kind"] == FOUND)


THRESHOLDS = {
    "state_age": age_threshold,
    "state_frozen": frozen_threshold,
    "operator_lost": operator_threshold,
    "operator_stop": stop_threshold,
    "second_commander": commander_threshold,
    "action_rate": action_threshold,
    "deadline": deadline_threshold,
    "internal": found_threshold,
}
