"""The workflow of a flow: its scripts run, and pass files on."""

import re
import subprocess
from pathlib import Path

import pytest
import yaml

from robot_rl.cluster.flow import osmo
from robot_rl.cluster.flow.dag import Computer, Flow, Gate, Output, Resources, Step, gate_step
from robot_rl.cluster.manifests.validate import can_validate, validate
from robot_rl.errors import UserError

FOLDER = "runs/.flows/t1"


@pytest.fixture(autouse=True)
def _here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def shell(name, line, **more):
    return Step(name=name, command=("sh", "-c", line), **more)


def make_flow(**train):
    train = shell(
        "train",
        "mkdir -p runs/t1 && echo 7 > runs/t1/weights",
        outputs={"run": Output(path="runs/t1")},
        resources=Resources(computer=Computer.TRAIN, cpus=4, gpus=2, memory_gb=32, minutes=90),
        **train,
    )
    line = f'test "$(cat {train["run"]}/weights)" = 7; echo \'{{"error": 0.1}}\' > @{{measure.figures}}; exit 1'
    measure = shell("measure", line, outputs={"figures": Output(path=f"{FOLDER}/f.json")}, codes=(0, 1))
    gate = gate_step(measure, "figures", [Gate(name="error", path="error", bound=0.2)])
    edge = shell(
        "edge",
        "echo done > @{edge.report}",
        after=("gate_measure",),
        outputs={"report": Output(path=f"{FOLDER}/edge.txt")},
        resources=Resources(computer=Computer.EDGE),
    )
    return Flow(name="test", id="t1", steps=(train, measure, gate, edge))


IMAGE, PLATFORMS = "registry/robot-rl:1", {"train": "gpu", "edge": "thor"}


def run_script(text, **env):
    done = subprocess.run(
        ["bash"], input=text, text=True, capture_output=True, check=False, env={"PATH": _path(), **env}
    )
    return done.returncode, done.stdout, done.stderr


def _path():
    return f"{Path.cwd() / 'bin'}:/usr/bin:/bin"


def program(name, text):
    path = Path("bin") / name
    path.parent.mkdir(exist_ok=True)
    path.write_text(f"#!/bin/bash\n{text}\n")
    path.chmod(0o755)


def task_script(step, tmp_path):
    (task,) = workflow(Flow(name="f", id="f", steps=(step,)))["workflow"]["tasks"]
    text = task["files"][0]["contents"].replace(osmo.WORK, str(tmp_path / "work"))
    return text.replace("{{output}}", str(tmp_path))


def test_a_task_takes_the_codes_of_its_step_and_misses_what_it_did_not_write(tmp_path):
    file = {"file": Output(path="a/b")}
    assert run_script(task_script(shell("good", "touch a/b", outputs=file), tmp_path))[0] == 0
    assert run_script(task_script(shell("one", "touch a/b; exit 1", codes=(0, 1), outputs=file), tmp_path))[0] == 0
    code, _, err = run_script(task_script(shell("nothing", "rm -f a/b", outputs=file), tmp_path))
    assert (code, err) == (1, "nothing: did not write a/b\n")
    assert run_script(task_script(shell("bad", "exit 3", codes=(0, 1), outputs=file), tmp_path))[0] == 3


FIELDS = {"name", "image", "command", "args", "inputs", "outputs", "files", "resource", "credentials", "environment"}
"""Fields of a task by OSMO's documentation; it refuses others."""


def workflow(flow):
    return yaml.safe_load(osmo.render(flow, IMAGE, PLATFORMS))


def test_osmo_gets_a_task_for_each_step_with_the_inputs_it_needs():
    tree = workflow(make_flow())
    tasks = {task["name"]: task for task in tree["workflow"]["tasks"]}
    assert {name: task.get("inputs", []) for name, task in tasks.items()} == {
        "train": [],
        "measure": [{"task": "train"}],
        "gate_measure": [{"task": "measure"}],
        "edge": [{"task": "gate_measure"}],
    }
    resources = tree["workflow"]["resources"]
    for task in tasks.values():
        assert set(task) <= FIELDS
        assert re.fullmatch(r"[a-zA-Z]([a-zA-Z0-9_-]*[a-zA-Z0-9])?", task["name"])
        assert task["image"] == IMAGE
        assert task["resource"] in resources
        assert not task["files"][0]["path"].startswith("/osmo")
    assert resources[tasks["train"]["resource"]] == {
        "cpu": 4,
        "gpu": 2,
        "memory": "32Gi",
        "storage": "20Gi",
        "platform": "gpu",
    }
    assert tree["workflow"]["timeout"]["exec_timeout"] == "5400s"


def test_the_workflow_is_valid_by_the_schema_of_robot_rl_manifest():
    if not can_validate():
        pytest.skip("needs the extra kubernetes")
    assert validate(osmo.render(make_flow(), IMAGE, PLATFORMS)) == []


def test_osmo_tasks_pass_their_files_on(tmp_path):
    program("robot-rl", 'test "$1 $2" = "flow gate" && test -e "$3"')
    for task in workflow(make_flow())["workflow"]["tasks"]:
        name = task["name"]
        text = task["files"][0]["contents"].replace(osmo.WORK, str(tmp_path / "work" / name))
        for place, entry in enumerate(task.get("inputs", [])):
            text = text.replace(f"{{{{input:{place}}}}}", str(tmp_path / "data" / entry["task"]))
        (tmp_path / "data" / name).mkdir(parents=True)
        code, _, err = run_script(text.replace("{{output}}", str(tmp_path / "data" / name)))
        assert (code, err) == (0, ""), name
    assert (tmp_path / "data" / "edge" / FOLDER / "edge.txt").exists()
    assert not (tmp_path / "data" / "edge" / "runs" / "t1").exists()


def test_osmo_has_a_key_as_a_credential_and_never_in_the_workflow():
    Path("robot.key").write_text("SECRET")
    Path("robot.key.pub").write_text("PUBLIC")
    sign = shell("sign", "cat robot.key", secrets=("robot.key",), files=("robot.key.pub",))
    text = osmo.render(Flow(name="f", id="f", steps=(sign,)), IMAGE, {})
    (task,) = yaml.safe_load(text)["workflow"]["tasks"]
    assert task["credentials"] == {"robot-rl-signing": {"ROBOT_RL_SIGNING_KEY": "key"}}
    assert task["files"][1] == {"path": "/tmp/files/robot.key.pub", "contents": "PUBLIC"}
    assert "SECRET" not in text


@pytest.mark.parametrize(
    ("step", "image", "platforms", "line"),
    [
        (shell("a", ""), "", {}, "needs image="),
        (shell("a", "{{x}}"), IMAGE, {}, "take its braces for a template"),
        (shell("a", "", files=("none.pub",)), IMAGE, {}, "none.pub: cannot be read"),
        (shell("a", "", outputs={"o": Output(path="/a")}), IMAGE, {}, "are below"),
        (shell("a", "", outputs={"o": Output(path="a b")}), IMAGE, {}, "letters"),
        (shell("a", ""), IMAGE, {"gpu": "a"}, r"platform\.gpu=a: is not a computer"),
        (shell("a", ""), IMAGE, {"train": "a b"}, r"platform\.train=a b: must be a name"),
    ],
)
def test_what_osmo_cannot_take_is_refused(step, image, platforms, line):
    with pytest.raises(UserError, match=line):
        osmo.render(Flow(name="f", id="f", steps=(step,)), image, platforms)
