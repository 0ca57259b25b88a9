"""A network slower than the control period: its missed deadlines damp the robot, which is still heard meanwhile."""

import json
import signal

import pytest
import torch
from robot_rl_deploy.contract import TrainingSpec
from robot_rl_deploy.export import export_policy

from .conftest import Robot


class SlowActor:
    """Several milliseconds of matrix products, one after the other."""

    def __init__(self, size, outputs, layers=30, width=1400):
        self.size, self.outputs, self.layers, self.width = size, outputs, layers, width

    def export_module(self):
        actor = self

        class Module(torch.nn.Module):
            def __init__(self):
                super().__init__()
                torch.manual_seed(0)
                self.first = torch.nn.Linear(actor.size, actor.width)
                self.again = torch.nn.Linear(actor.width, actor.width)
                self.last = torch.nn.Linear(actor.width, actor.outputs)

            def forward(self, obs):
                value = torch.tanh(self.first(obs))
                for _ in range(actor.layers):
                    value = torch.tanh(self.again(value))
                return self.last(value)

        return Module().eval()


@pytest.fixture(scope="module")
def slow_bundle(shared, tmp_path_factory):
    """The toy's policy with a control period of 1 ms."""
    toy = shared("unit/deploy/conftest.py")

    class Env(toy.ToyEnv):
        def describe_policy(self):
            return toy.toy_description() | {"control_period_s": 0.001, "physics_timestep_s": 0.001}

    out = tmp_path_factory.mktemp("slow") / "policy"
    run = TrainingSpec(run_id="slow", task="toy_task", git_commit="0" * 40, iteration=0)
    export_policy(Env(), SlowActor(30, 2), out, run=run, steps=200)
    return out


def test_missed_deadlines_damp(rt, start, robot, slow_bundle, free_address, report, damped, tmp_path):
    contract = json.loads((slow_bundle / "contract.json").read_text())
    robot.address = free_address()
    settings = {"limits.missed_deadlines": 3, "writer_period_s": 0.001}
    log = tmp_path / "run.mcap"
    with Robot(rt, robot.address, contract) as toy:
        process = start("--log", log, bundle=slow_bundle, settings=settings)
        since = toy.commands.index(toy.wait_for(lambda c: c.phase == "POLICY"))
        assert toy.wait_for(lambda c: c.phase == "DAMPING", since=since).fault == "DEADLINE"
        process.send_signal(signal.SIGTERM)
        _, said = process.communicate(timeout=60)
    assert process.returncode == 4, said
    assert "DAMPING: deadline" in said
    assert report()["loop"]["missed_deadlines"] >= 3
    answer = damped(log)
    assert (answer.fault, answer.active) == ("deadline", 0)
    print(f"the third missed period -> damping: {answer.after_ms:.2f} ms, {answer.ticks} writer ticks")
    # Each step read a state that was no longer the newest when it ended: the log plays back all the same.
    replayed = start("--replay", log)
    _, said = replayed.communicate(timeout=60)
    assert replayed.returncode == 0, said
