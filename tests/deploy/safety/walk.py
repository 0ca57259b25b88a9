"""A walk of the simulated Go2 under commander and policy, tick by tick by the simulated clock, and its states again."""

import numpy as np

US = 0x5EED
START_NS = 10**12
PERIOD = 10  # ticks of a control step
WALK_S, RELEASE_S, OVER_S, END_S = 0.42, 0.48, 3.4, 4.4
"""The policy takes over, the gantry lets go, the push that throws it over, the end [s]."""


class Walk:
    """Plays the robot's computer to a plant: states to the commander, the policy's outputs, the operator.

    Attributes:
        states: Every state that was handed over.
        outputs: Of the policy, by tick.
    """

    def __init__(self, runtime, bundle, **limits):
        self.runtime, self.policy = runtime, runtime.open_policy(bundle)
        self.contract, settings = self.policy.contract, runtime.Settings()
        settings.stand_s, settings.blend_s = 0.2, 0.1
        for name, value in limits.items():
            setattr(settings.limits, name, value)
        self.commander = runtime.Commander(self.contract, settings, US)
        self.states, self.outputs, self.commands, self.epoch = [], {}, [], None

    def tick(self, plant):
        """The plant's `Exchange`."""
        low = self.runtime.LowState() if not self.states else self.states[-1].copy()
        plant.robot.sense(low)
        low.sequence, low.commander, k = len(self.states) + 1, US, len(self.states)
        low.robot_time_ns = k * 2_000_000
        self.states.append(low)
        plant.robot.command = self.take(low, k)

    def take(self, state, k, output=None):
        """Hand over the state of tick k, and at a control step the policy's output; the command of then."""
        commander, now = self.commander, START_NS + k * 2_000_000
        state.receive_time_ns = now
        commander.on_state(state, now)
        if k == 0:
            commander.ready(now)
        if k % PERIOD == 0:
            self._operate(k * 0.002, now)
            if output is None:
                reset = commander.policy_epoch != self.epoch
                output = self.policy.step(state, list(commander.operator_command), reset)
                self.epoch, self.outputs[k] = commander.policy_epoch, output
            commander.on_policy(output, now)
        self.commands.append(commander.command(now))
        return self.commands[-1]

    def _operate(self, seconds, now):
        word, request = self.runtime.OperatorInput(), self.runtime.Request
        word.receive_time_ns, word.size, word.command = now, 3, [0.5, 0.0, 0.2]
        if 0 < seconds < 0.1:
            word.request = request.STAND
        elif seconds >= WALK_S - 0.01:
            word.request = request.POLICY
        self.commander.on_operator(word, now)


def record(runtime, bundle):
    """A walk from a gantry, pushed gently now and then, at last thrown over; what protects it is off."""
    import torch
    from robot_rl_tasks.registry import get_task

    from robot_rl.sim2sim.plant import Plant

    task = get_task("go2_flat")
    task.episode_length_s, task.terminations = 86_400.0, {}
    off = ("tilt_rad", "position_margin", "velocity_factor", "effort_factor", "action_rate")
    off += ("sensor_frozen_s", "imu_disagree_rad")
    walk, plant = Walk(runtime, bundle, **dict.fromkeys(off, 1e6)), Plant(task, seed=3)
    plant.connect(walk)
    plant.hold(True)
    rng = np.random.default_rng(0)
    for step in range(round(END_S / 0.02)):
        speed, seconds = plant.robot._rows["qvel"][0], step * 0.02
        if round(RELEASE_S / 0.02) == step:
            plant.hold(False)
        if WALK_S < seconds < OVER_S and step % 25 == 0:
            speed[:2] += rng.uniform(-0.7, 0.7, 2)
            speed[3:6] += rng.uniform(-1.5, 1.5, 3)
        if round(OVER_S / 0.02) == step:
            speed[2:4] += 2.0, 12.0
        plant.env.step(torch.zeros(1, plant.env.num_actions))
    plant.close()
    return walk


def again(runtime, bundle, recorded, change, seconds=END_S, **limits):
    """Hand the states of a walk to another commander, changed; `change(state, seconds)`. Returns the walk."""
    walk = Walk(runtime, bundle, **limits)
    for k, state in enumerate(recorded.states[: round(seconds / 0.002)]):
        given = change(state.copy(), k * 0.002)
        if given is not None:
            walk.take(given, k, recorded.outputs.get(k))
    return walk
