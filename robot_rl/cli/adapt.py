"""Adapt a policy to its robot while it runs: a simulated robot in real time, by its own binary.

usage: robot-rl adapt policy=<name> plant=<plant> [key=value ...]

{Options}

plants:
{kinds}

The robot first follows commands for `measure` seconds. Then it explores for `minutes`: the binary adds noise to the
policy's actions, PPO learns from its log meanwhile, and newer weights reach it as a bundle, which the binary checks and
takes between two control steps, or refuses. The robot never waits for the learner. At the end it follows the same
commands again, and both policies are compared in 64 worlds of the plant. The run has the new policy's bundle
(`policy/`) and adapt.json.

Numbers of the task and the learner can be set by name, such as ppo.learning_rate=1e-4. Exits with 0 if the policy
then tracks better in them and nothing stopped the robot, else with 1.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from robot_rl.cli.options import MAX_SEED, PolicyOptions, option, read
from robot_rl.cli.table import two_columns
from robot_rl.errors import UserError


@dataclass(kw_only=True, slots=True)
class Options(PolicyOptions):
    """Options of robot-rl adapt."""

    plant: str = option("heavier", "the robot, below")
    payload: float = option(0.0, "of plant=heavier: the mass that it carries [kg]; 0: a third of the robot's")
    payload_at: str = option("0.15,0,0.05", "of plant=heavier: where, in the frame of the robot's base [m]")
    motors_seed: int = option(0, "of plant=motors: which other motors", least=0, most=MAX_SEED)
    speed: float = option(0.6, "share of the range of the task's velocity commands that it is given")
    minutes: float = option(10.0, "how long the robot explores [min]", least=1.0, most=1440.0)
    explore: float = option(0.15, "standard deviation of the exploration, of the raw action", least=0.01, most=2.0)
    segment: float = option(20.0, "weights are published as often [s]", least=1.0, most=600.0)
    window: int = option(5, "so many segments are learned from at once", least=1, most=100)
    measure: float = option(60.0, "how long it follows commands before and after [s]", least=5.0, most=3600.0)
    fit: int = option(30, "iterations in simulation, with 256 worlds, that fit the critic", least=1, most=10_000)
    settings: str = option("", "settings of the binary, such as limits.tilt_rad:0.8")
    keep_log: bool = option(False, "keep the log of the exploration, robot.mcap, some 30 MB a minute")
    seed: int = option(1, "of robot and learner", least=0, most=MAX_SEED)


def kinds() -> str:
    """Return a line for each plant."""
    from robot_rl.sim2sim.adapt.plants import KINDS

    return two_columns(list(KINDS.items()))


def run(arguments: Sequence[str]) -> int:
    """Adapt, and print the gain."""
    from robot_rl.cli.sim2sim import read_settings

    options, changes = read(Options, arguments)
    from robot_rl.sim2sim.adapt.plants import PlantCfg

    plant = PlantCfg(
        name=options.plant,
        payload=options.payload,
        payload_at=_point(options.payload_at),
        motors_seed=options.motors_seed,
        speed=options.speed,
    )
    if 60.0 * options.minutes < options.window * options.segment:
        line = f"minutes={options.minutes:g}: is less than window={options.window} segments of"
        raise UserError(f"{line} segment={options.segment:g} s; give more minutes, or less of the others")
    options.refuse_unsupported("sim2sim")
    settings = read_settings(options.settings)
    source = options.find_policy({**changes, "device": "cpu", "engine": "mujoco"})
    from robot_rl.sim2sim.adapt.adapt import Adaptation, AdaptCfg
    from robot_rl.sim2sim.binary import load_runtime

    load_runtime()
    cfg = AdaptCfg(
        plant=plant,
        minutes=options.minutes,
        explore=options.explore,
        segment_s=options.segment,
        window=options.window,
        measure_s=options.measure,
        fit=options.fit,
        seed=options.seed,
        settings=settings,
        keep_log=options.keep_log,
    )
    adaptation = Adaptation(source, changes, cfg, root=options.root, say=lambda line: print(line, flush=True))
    return show(adaptation.run(), adaptation.run_dir.words)


def _point(text: str) -> tuple[float, float, float]:
    """Read a point from three numbers."""
    try:
        x, y, z = (float(part) for part in text.strip("[]()").split(","))
    except ValueError:
        raise UserError("payload_at", text, "must be three numbers, such as 0.15,0,0.05") from None
    return x, y, z


def show(result: Mapping[str, Any], words: str) -> int:
    """Print the gain; return the exit code."""
    before, after, robot = result["before"], result["after"], result["robot"]
    better = True
    places = (("in 64 worlds of the plant", before["evaluated"], after["evaluated"]), ("in real time", before, after))
    for where, old, new in places:
        for name, unit in (("lin_vel_error", "m/s"), ("yaw_vel_error", "rad/s")):
            if name in old and name in new:
                change = 100.0 * (new[name] / old[name] - 1.0)
                print(f"  {name} {where}: {old[name]:.3f} -> {new[name]:.3f} {unit} ({change:+.0f} %)")
    if "lin_vel_error" in before["evaluated"] and "lin_vel_error" in after["evaluated"]:
        better = after["evaluated"]["lin_vel_error"] < before["evaluated"]["lin_vel_error"]
    faults = [fault["fault"] for part in (before, robot, after) for fault in part["faults"]]
    falls = sum(part["falls"] for part in (before, robot, after))
    print(f"  stopped by the safety layer: {', '.join(faults) or 'never'}; {falls} falls")
    print(f"  actions that it limited: {100.0 * result['limited'] / max(result['steps'], 1):.1f} %")
    refused = sum(bool(one["refused"]) for one in result["bundles"])
    acted = sum(one["first_step"] is not None for one in result["bundles"][1:])  # It began with the first.
    print(f"  {acted} newer bundles acted, {refused} were refused")
    print(f"  {'better' if better else 'NOT better: keep the old one'}; robot-rl sim2sim run={words}")
    return 0 if better and not faults else 1
