"""The door for scripts: settings, runs and policies are those of the command line, and the examples run."""

import subprocess
import sys
from pathlib import Path

import pytest
import torch
import yaml

import robot_rl as rr
from robot_rl.errors import UserError

EXAMPLES = Path(__file__).parents[3] / "examples"
SMALL = {"max_iterations": 2, "num_envs": 16, "num_steps": 8, "num_threads": 1, "learner_threads": 1}


def test_a_run_is_that_of_the_command_line(tmp_path, run, monkeypatch):
    """The same settings and the same metrics, to the bit."""
    monkeypatch.chdir(tmp_path)
    words = [f"{key}={value}" for key, value in SMALL.items()]
    changed = "ppo.learning_rate=5e-4", "rewards.upright.weight=2"
    assert run("train", "task=cartpole", *words, *changed, "run_id=there")[0] == 0
    made = rr.train("cartpole", run_id="here", **SMALL, ppo={"learning_rate": 5e-4}, **{"rewards.upright.weight": 2})
    there = rr.Run(made.path.with_name("there"))
    one, other = (yaml.safe_load((path / "run.yaml").read_text())["config"] for path in (made.path, there.path))
    assert {key for key in one if one[key] != other[key]} == {"run_id"}
    for mine, theirs in zip(made.metrics, there.metrics, strict=True):
        assert {k: v for k, v in mine.items() if "time" not in k and "perf" not in k} == {
            k: v for k, v in theirs.items() if "time" not in k and "perf" not in k
        }
    assert repr(made).startswith("<run cartpole/here: iteration 2")
    policy = rr.load("here")
    assert repr(policy) == "<policy for cartpole: run here>"
    assert rr.evaluate(policy, episodes=2, seconds=0.5)["agreement"]["actions"]
    assert rr.export(made) == made.path / "policy"
    assert rr.evaluate(made.path / "policy", episodes=2, seconds=0.5, form="onnx")["onnx"]


def test_what_is_wrong_is_one_line(tmp_path):
    for call, line in (
        (lambda: rr.make("cartpol"), "did you mean 'cartpole'"),
        (lambda: rr.make("cartpole", rewards={"uprigth": {"weight": 1.0}}), "uprigth"),
        (lambda: rr.train("cartpole", learning_rate=1e-3), "did you mean 'ppo.learning_rate'"),
        (lambda: rr.load("cartpol", root=tmp_path), "cartpol"),
        (lambda: rr.load("go2_fla", root=tmp_path), "run=go2_fla: .*; shipped policies: did you mean 'go2_flat'"),
        (lambda: rr.make("cartpole", ppo={"learning_rat": 1e-3}), "did you mean 'ppo.learning_rate'"),
        (lambda: rr.make("go2_flat", rewards={"foo": {"weight": 1}}), "'rewards.foo': known: action_rate, "),
        (lambda: rr.make("go2_flat", **{"rewards.foo.weight": 1}), "'rewards.foo.weight': known: action_rate, "),
        (lambda: rr.export("latest", root=tmp_path), "no run in"),
        (lambda: rr.train(3), "must be a name"),  # type: ignore[arg-type]
        (lambda: rr.Robot.from_file(tmp_path / "none.urdf"), "none.urdf"),
        (lambda: rr.make(3), "task=3: must be the name of a task"),  # type: ignore[arg-type]
        (lambda: rr.evaluate("panda_reach", form="onx"), "form=onx: must be one of"),
        (lambda: rr.evaluate("panda_reach", form="torch"), "form=torch: a bundle has only onnx"),
        (lambda: rr.load("panda_reach").evaluate(episodes=0), "episodes=0: must be an integer"),
        (lambda: rr.load("panda_reach").evaluate(seconds=-1), r"seconds=-1: must be in \(0, 3600\]"),
    ):
        with pytest.raises((UserError, ValueError), match=line):
            call()
    with pytest.raises(AttributeError, match="lacks the attribute 'maek'"):
        rr.maek  # noqa: B018


def test_a_shipped_policy_acts_in_its_task():
    policy = rr.load("panda_reach")
    env = policy.make_env(num_envs=2)
    actions = policy.on(env)(env.reset())
    assert actions.shape == (2, env.num_actions)
    assert torch.isfinite(actions).all()


def test_importing_it_imports_nothing_else():
    code = "import sys, robot_rl; assert not {'torch', 'warp', 'mujoco', 'numpy'} & {*sys.modules}; robot_rl.make"
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("train_and_export", ["2"]),
        ("step_a_task", []),
        ("shipped_policy", []),
        ("own_reward", ["2"]),
        ("own_robot", ["robot"]),
    ],
)
def test_an_example_runs(name, words, tmp_path, start_python):
    if words == ["robot"]:
        limit = '<limit lower="-1" upper="1" effort="5" velocity="2"/>'
        mass = '<inertial><mass value="1"/><inertia ixx=".01" iyy=".01" izz=".01" ixy="0" ixz="0" iyz="0"/></inertial>'
        parts = "".join(f'<link name="{name}">{mass}</link>' for name in "ab")
        joint = f'<joint name="j" type="revolute"><parent link="a"/><child link="b"/><axis xyz="0 1 0"/>{limit}</joint>'
        (tmp_path / "arm.urdf").write_text(f'<robot name="arm">{parts}{joint}</robot>')
        words = [str(tmp_path / "arm.urdf")]
    process = start_python([str(EXAMPLES / f"{name}.py"), *words], cwd=tmp_path)
    output, _ = process.communicate(timeout=180)
    assert process.returncode == 0, output


@pytest.mark.long
@pytest.mark.parametrize("name", ["first_steps", "look_inside"])
def test_a_notebook_runs(name, tmp_path):
    nbformat = pytest.importorskip("nbformat")
    from nbclient import NotebookClient

    notebook = nbformat.read(EXAMPLES / f"{name}.ipynb", 4)
    assert not any(cell.get("outputs") for cell in notebook.cells), "is kept without outputs"
    for cell in notebook.cells:
        cell.source = cell.source.replace("max_iterations=100", "max_iterations=2")
    NotebookClient(notebook, timeout=300, resources={"metadata": {"path": str(tmp_path)}}).execute()
    assert any("image/png" in output.get("data", {}) for cell in notebook.cells for output in cell.get("outputs", []))
