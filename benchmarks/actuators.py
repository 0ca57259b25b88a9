"""Cost of each actuator, and its response to a step: the table and the plot of docs/actuators.md.

    python benchmarks/actuators.py cost num_envs=512 rounds=15
    python benchmarks/actuators.py plot out=docs/img/actuators_step.png

The costs are those of go2_flat without its strength event. The kinds take turns, block after block, and each block is
compared with the native servo's of the same round, so that a busy machine slows them all alike.
"""

from __future__ import annotations

import dataclasses
import itertools
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import torch
from harness import in_turn, median_ratio, seconds
from robot_rl_assets.robot import Joint, Robot
from robot_rl_envs.actuation.actuator_net import save_actuator_net
from robot_rl_envs.actuation.actuators import Actuator, ActuatorNet, DcMotor, ExplicitPd, PositionPd
from robot_rl_envs.env import Env
from robot_rl_envs.make import make_env
from robot_rl_envs.mdp import observations, rewards
from robot_rl_envs.task import Actions, Observation, ObservationGroup, Reward, Sim, Task
from robot_rl_tasks.registry import get_task
from words import IMAGE, read_words, run_script

from robot_rl.errors import UserError

BLOCK_STEPS = 20
RIG_DT = 0.002
RIG = """<mujoco><worldbody><body><joint name="hinge" type="hinge" axis="0 1 0" damping="0.1" armature="0.01"
frictionloss="0.2"/><inertial pos="0 0 0" mass="0.2" diaginertia="0.006 0.006 0.006"/></body></worldbody></mujoco>"""


def fit_net(
    path: Path, lags: tuple[float, ...], widths: tuple[int, ...] = (32, 32), activation: str = "softsign"
) -> str:
    """Fit ``40 error[t - lags[1]] - velocity[t]``, a delayed PD law, as logged data of a real joint would be."""
    torch.manual_seed(0)
    kind = {"softsign": torch.nn.Softsign, "tanh": torch.nn.Tanh}[activation]
    sizes, parts = [2 * len(lags), *widths], []
    for inputs, outputs in itertools.pairwise(sizes):
        parts += [torch.nn.Linear(inputs, outputs), kind()]
    net = torch.nn.Sequential(*parts, torch.nn.Linear(sizes[-1], 1))
    optimizer = torch.optim.Adam(net.parameters(), lr=4e-3)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 2500)
    for _ in range(2500):
        error, velocity = torch.rand(512, len(lags)) * 2 - 1, torch.rand(512, len(lags)) * 2 - 1
        want = (40.0 * 1.2 * error[:, 1] - 25.0 * velocity[:, 0]) / 40.0
        loss = torch.nn.functional.mse_loss(net(torch.cat([error, velocity], dim=1))[:, 0], want)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
    layers = [(layer.weight, layer.bias) for layer in net if isinstance(layer, torch.nn.Linear)]
    scales = {"error_scale": 1 / 1.2, "velocity_scale": 1 / 25.0, "output_scale": 40.0}
    save_actuator_net(path, layers, activation=activation, lags_s=lags, **scales)
    return str(path)


def cost(num_envs: int, rounds: int) -> None:
    """Print control steps per second of each kind compared with the native servo's, taken in turns."""
    folder = Path(tempfile.mkdtemp())
    lags = tuple(k * 0.02 / 3 for k in range(3))
    delay: dict[str, Any] = {"delay_s": (0.0, 0.02)}
    soft = fit_net(folder / "softsign.safetensors", lags)
    tanh = fit_net(folder / "tanh.safetensors", lags, activation="tanh")
    kinds: dict[str, Actuator] = {
        "PositionPd": PositionPd(),
        "PositionPd, delay": PositionPd(**delay),
        "DcMotor": DcMotor(),
        "ExplicitPd": ExplicitPd(),
        "ExplicitPd, curve and delay": ExplicitPd(saturation_effort=1.5, **delay),
        "ActuatorNet 6-32-32-1, softsign": ActuatorNet(file=soft),
        "ActuatorNet 6-32-32-1, tanh": ActuatorNet(file=tanh),
    }
    task = get_task("go2_flat")
    events = {name: event for name, event in task.events.items() if name != "motors"}
    envs = {
        name: make_env(
            dataclasses.replace(task, events=events, actions=dataclasses.replace(task.actions, actuator=actuator)),
            num_envs=num_envs,
            engine="mujoco",
        )
        for name, actuator in kinds.items()
    }
    actions = 0.3 * torch.randn(BLOCK_STEPS, num_envs, 12, generator=torch.Generator().manual_seed(0))

    def block(env: Env) -> float:
        return seconds(lambda: [env.step(action) for action in actions])

    taken = in_turn(envs, lambda: map(block, envs.values()), rounds)
    print("| actuator | control steps/s | of the native servo's |\n|---|---|---|")
    for name, times in taken.items():
        ratio = median_ratio(taken["PositionPd"], times)
        print(f"| {name} | {num_envs * BLOCK_STEPS / np.median(times):,.0f} | {ratio:.2f} |")


def rig(actuator: Actuator, num_envs: int = 1) -> Any:
    """One joint with a calf's inertia, 23.7 N m and 30.1 rad/s."""
    model = Path(tempfile.mkdtemp()) / "rig.xml"
    model.write_text(RIG)
    joint = Joint(name="hinge", default_pos=0.0, effort_limit=23.7, velocity_limit=30.1, kp=40.0, kd=1.0)
    sensed = ObservationGroup(terms={"joint_pos": Observation(observations.joint_pos_rel)})
    task = Task(
        name="rig",
        robot=Robot(name="rig", model=model, joints=(joint,)),
        sim=Sim(timestep=RIG_DT, decimation=1),
        actions=Actions(actuator=actuator),
        observations={"actor": sensed},
        rewards={"alive": Reward(rewards.alive, weight=1.0)},
    )
    return make_env(task, num_envs=num_envs, engine="mujoco", num_threads=1)


def step_response(actuator: Actuator, steps: int = 150) -> tuple[np.ndarray, np.ndarray]:
    """Joint position [rad] and torque [N m] after the target jumps from 0 to 1 rad."""
    env = rig(actuator)
    position, torque = [], []
    for _ in range(20):
        env.step(torch.zeros(1, 1))
    for _ in range(steps):
        position.append(env.state.joint_pos.item())
        env.step(torch.ones(1, 1))
        torque.append(env.state.joint_torque.item())
    return np.array(position), np.array(torque)


def largest_torque(actuator: Actuator, speeds: np.ndarray) -> np.ndarray:
    """The torque [N m] at each speed [rad/s] for a target far ahead."""
    env = rig(actuator, len(speeds))
    env.state.qvel[:, 0] = torch.from_numpy(speeds)
    env.state.dirty.fill_(1)
    env.write_back()
    env.step(torch.full((len(speeds), 1), 9.0))
    return env.state.joint_torque[:, 0].numpy().copy()


Lines = dict[str, tuple[np.ndarray, np.ndarray]]
COLORS = ("#1f5fa8", "#e07b1f", "#2d8a4e", "#b0307a", "#6a6f78")


def draw_panel(draw: Any, box: tuple[int, int, int, int], title: str, lines: Lines, font: Any) -> None:
    """Draw one panel: a grid at round figures, a line for each entry, the legend where the lines leave room."""
    left, top, right, bottom = box
    xs = np.concatenate([x for x, _ in lines.values()])
    ys = np.concatenate([y for _, y in lines.values()])
    (x0, x1), (y0, y1) = (xs.min(), xs.max()), (ys.min(), ys.max())
    y0, y1 = y0 - 0.05 * (y1 - y0), y1 + 0.08 * (y1 - y0)

    def place(x: float, y: float) -> tuple[float, float]:
        return left + (x - x0) / (x1 - x0) * (right - left), bottom - (y - y0) / (y1 - y0) * (bottom - top)

    draw.text((left, top - 16), title, fill="#20242a", font=font, anchor="ls")
    for values, low, high, vertical in ((ticks(x0, x1), x0, x1, True), (ticks(y0, y1), y0, y1, False)):
        for value in values:
            if not low <= value <= high:
                continue
            a, b = (place(value, y0), place(value, y1)) if vertical else (place(x0, value), place(x1, value))
            draw.line((*a, *b), fill="#e3e6ea", width=2)
            where = (a[0], a[1] + 10) if vertical else (a[0] - 12, a[1])
            draw.text(where, f"{value:g}", fill="#6a6f78", font=font, anchor="mt" if vertical else "rm")
    for k, (name, (x, y)) in enumerate(lines.items()):
        points = [place(a, b) for a, b in zip(x, y, strict=True)]
        draw.line(points, fill=COLORS[k], width=5, joint="curve")
        # the torque-speed curves leave the lower left free, the torques the upper right, positions the lower right
        row = top + 24 + 40 * k if y.min() < -1 and x.min() >= 0 else bottom - 24 - 40 * (len(lines) - 1 - k)
        start = left + 20 if x.min() < 0 else right - 75
        draw.line((start, row, start + 55, row), fill=COLORS[k], width=6)
        at, anchor = (start + 75, "lm") if x.min() < 0 else (start - 20, "rm")
        draw.text((at, row), name, fill="#20242a", font=font, anchor=anchor)


def ticks(low: float, high: float) -> np.ndarray:
    """Four to nine round values between two."""
    step = 10 ** np.floor(np.log10((high - low) / 4))
    step *= next(k for k in (5, 2, 1) if k * step <= (high - low) / 4)
    return np.round(np.arange(np.ceil(low / step), high / step + 1) * step, 6) + 0.0


def plot(out: str) -> None:
    """Draw the step responses and the torque-speed curves."""
    from PIL import Image, ImageDraw, ImageFont

    net = fit_net(Path(tempfile.mkdtemp()) / "late.safetensors", (0.0, 0.01, 0.02))
    kinds: dict[str, Actuator] = {
        "PositionPd": PositionPd(),
        "ExplicitPd": ExplicitPd(),
        "DcMotor": DcMotor(),
        "PositionPd, 20 ms late": PositionPd(delay_s=(0.02, 0.02)),
        "ActuatorNet, trained on a PD 10 ms late": ActuatorNet(file=net),
    }
    answers = {name: step_response(actuator) for name, actuator in kinds.items()}
    times = RIG_DT * np.arange(150)
    speeds = np.linspace(-45.0, 45.0, 181)
    curves: dict[str, Actuator] = {
        "effort limit only": PositionPd(),
        "ExplicitPd(saturation_effort=1.5)": ExplicitPd(saturation_effort=1.5),
        "DcMotor()": DcMotor(),
        "DcMotor(saturation_effort=2)": DcMotor(saturation_effort=2.0),
    }
    image = Image.new("RGB", (3000, 1000), "white")
    draw, font = ImageDraw.Draw(image), ImageFont.load_default(size=30)
    panels: list[tuple[str, Lines]] = [
        ("joint position [rad] over time [s]: the target jumps to 1", {k: (times, v[0]) for k, v in answers.items()}),
        ("torque [N m] over time [s]", {k: (times, v[1]) for k, v in answers.items()}),
        (
            "largest torque [N m] over speed [rad/s]",
            {k: (speeds, largest_torque(v, speeds)) for k, v in curves.items()},
        ),
    ]
    for k, (title, lines) in enumerate(panels):
        draw_panel(draw, (110 + 1000 * k, 90, 960 + 1000 * k, 920), title, lines, font)
    image.resize((1500, 500), Image.Resampling.LANCZOS).save(out)
    print(out)


def main(arguments: list[str]) -> None:
    """Run "cost" or "plot"."""
    mode, words = "".join(arguments[:1]), arguments[1:]
    if mode == "cost":
        options = read_words(words, {"num_envs": "512", "rounds": "15"}, whole=("num_envs", "rounds"))
        cost(int(options["num_envs"]), int(options["rounds"]))
    elif mode == "plot":
        plot(read_words(words, {"out": "docs/img/actuators_step.png"}, kind=IMAGE)["out"])
    else:
        raise UserError(f"'{mode}': write cost or plot first")


if __name__ == "__main__":
    run_script(main)
