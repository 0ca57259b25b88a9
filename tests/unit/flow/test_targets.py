"""Manifests for clusters: the same graph in each, and scripts that run."""

import json
import re
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
import yaml

from robot_rl.errors import UserError
from robot_rl.flow.dag import Computer, Flow, Gate, Output, Resources, Step, gate_step
from robot_rl.flow.targets import osmo, ray, slurm
from robot_rl.flow.targets.ray_driver import Driver
from robot_rl.flow.targets.shell import ClusterCfg, body, check_folder, write_folder
from robot_rl.manifests.validate import can_validate, validate

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
        resumable=True,
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


PLATFORMS = ClusterCfg(platforms={"train": "gpu", "edge": "thor"}, image="registry/robot-rl:1")


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


def test_lines_of_a_step_take_its_codes_and_miss_what_it_did_not_write():
    flow = make_flow()
    assert run_script("set -eu\n" + "\n".join(body(flow, flow["train"])))[0] == 0
    assert run_script("set -eu\n" + "\n".join(body(flow, flow["measure"])))[0] == 0
    nothing = shell("nothing", "true", outputs={"file": Output(path="a/b")})
    code, _, err = run_script("set -eu\n" + "\n".join(body(Flow(name="f", id="f", steps=(nothing,)), nothing)))
    assert (code, err) == (1, "nothing: did not write a/b\n")
    bad = shell("bad", "exit 3", codes=(0, 1), outputs={"file": Output(path="a/b")})
    assert run_script("set -eu\n" + "\n".join(body(Flow(name="f", id="f", steps=(bad,)), bad)))[0] == 3


def write(files, out="out"):
    return write_folder(check_folder(out), files, {"flow": "test", "id": "t1", "target": "slurm"})


def test_slurm_scripts_parse_and_ask_for_what_the_steps_need():
    files = slurm.manifests(make_flow(), PLATFORMS, FOLDER)
    assert [*files] == ["01_train.sh", "02_measure.sh", "03_gate_measure.sh", "04_edge.sh", "submit.sh"]
    for path in write(files):
        assert subprocess.run(["bash", "-n", path], check=False).returncode == 0
        assert path.stat().st_mode & 0o111
    asked = dict(re.findall(r"^#SBATCH --([\w-]+)=(.*)$", files["01_train.sh"], re.MULTILINE))
    assert asked | {"output": ""} == {
        "job-name": "t1-train",
        "nodes": "1",
        "ntasks": "1",
        "cpus-per-task": "4",
        "mem": "32G",
        "time": "90",
        "output": "",
        "open-mode": "append",
        "gpus-per-node": "2",
        "partition": "gpu",
        "signal": "USR1@120",
    }
    assert "--partition=thor" in files["04_edge.sh"]
    assert "--partition" not in files["02_measure.sh"]


SBATCH = """\
count=$(($(cat count 2>/dev/null || echo 100) + 1)); echo $count > count
echo "$@" >> calls
if [ "$count" -gt "${LAST:-999}" ]; then exit 1; fi
echo "$count;cluster\""""


def test_submit_gives_each_job_the_ids_it_waits_for():
    write(slurm.manifests(make_flow(), PLATFORMS, FOLDER))
    program("sbatch", SBATCH)
    done = subprocess.run(["out/submit.sh"], env={"PATH": _path()}, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "train 101\nmeasure 102\ngate_measure 103\nedge 104\n")
    assert Path("calls").read_text().replace(f"{Path.cwd()}/", "").splitlines() == [
        "--parsable out/01_train.sh",
        "--parsable --dependency=afterok:101 --kill-on-invalid-dep=yes out/02_measure.sh",
        "--parsable --dependency=afterok:102 --kill-on-invalid-dep=yes out/03_gate_measure.sh",
        "--parsable --dependency=afterok:103 --kill-on-invalid-dep=yes out/04_edge.sh",
    ]
    assert Path(f"{FOLDER}/log").is_dir()


def test_a_submission_that_fails_takes_back_the_jobs_before_it():
    write(slurm.manifests(make_flow(), PLATFORMS, FOLDER))
    program("sbatch", SBATCH)
    program("scancel", 'echo "$@" > cancelled')
    code = subprocess.run(["out/submit.sh"], env={"PATH": _path(), "LAST": "102"}, capture_output=True, check=False)
    assert code.returncode != 0
    assert Path("cancelled").read_text() == "101 102\n"


@pytest.mark.parametrize(("ends", "requeued"), [(0, False), (85, True), (86, False)])
def test_a_training_that_saved_is_requeued(ends, requeued):
    text = slurm.manifests(make_flow(), PLATFORMS, FOLDER)["01_train.sh"]
    program("srun", f'"$@"; exit {ends}')
    program("scontrol", 'echo "$@" > requeued')
    assert run_script(text, SLURM_JOB_ID="7")[0] == ends
    assert Path("requeued").exists() is requeued


class Client:
    """Ray's client of jobs: each runs at once, as a process here."""

    def __init__(self, fails=()):
        self.jobs, self.fails, self.stopped = {}, fails, []

    def list_jobs(self):
        return [SimpleNamespace(submission_id=name, status=status) for name, status in self.jobs.items()]

    def submit_job(self, *, entrypoint, submission_id, runtime_env, **needs):
        assert submission_id not in self.jobs
        step = submission_id.removeprefix("t1-").rpartition("-")[0]
        env = {"PATH": _path(), **runtime_env["env_vars"]}
        done = subprocess.run(entrypoint.split(), cwd=runtime_env["working_dir"], env=env, check=False)
        self.jobs[submission_id] = "FAILED" if done.returncode or step in self.fails else "SUCCEEDED"
        self.needs = needs
        return submission_id

    def get_job_status(self, name):
        return self.jobs[name]

    def get_job_logs(self, name):
        return "first\nthe last line\n"

    def stop_job(self, name):
        self.stopped.append(name)


def ray_driver(client):
    program("robot-rl", "true")
    files = ray.manifests(make_flow(), PLATFORMS, FOLDER)
    write(files)
    return Driver(client, json.loads(files["graph.json"]), str(Path("out").resolve()), str(Path.cwd()))


def test_the_driver_of_ray_submits_in_the_order_of_the_graph(capsys):
    client = Client()
    assert ray_driver(client).run(poll_s=0.0) == 0
    assert [*client.jobs] == ["t1-train-1", "t1-measure-1", "t1-gate_measure-1", "t1-edge-1"]
    assert client.needs["entrypoint_resources"] == {"thor": 0.001}
    assert Path(f"{FOLDER}/edge.txt").read_text() == "done\n"
    assert "train succeeded" in capsys.readouterr().out


def test_the_driver_stops_at_a_failure_and_goes_on_behind_what_succeeded(capsys):
    client = Client(fails=("gate_measure",))
    assert ray_driver(client).run(poll_s=0.0) == 1
    assert "step gate_measure failed: the last line" in capsys.readouterr().err
    assert "t1-edge-1" not in client.jobs
    client.fails = ()
    assert ray_driver(client).run(poll_s=0.0) == 0
    assert [*client.jobs][3:] == ["t1-gate_measure-2", "t1-edge-1"]


FIELDS = {"name", "image", "command", "args", "inputs", "outputs", "files", "resource", "credentials", "environment"}
"""Fields of a task by OSMO's documentation; it refuses others."""


def workflow(flow):
    return yaml.safe_load(osmo.manifests(flow, PLATFORMS, FOLDER)["workflow.yaml"])


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
        assert task["image"] == "{{ image }}"
        assert task["resource"] in resources
        assert not task["files"][0]["path"].startswith("/osmo")
    assert tree["default-values"] == {"image": "registry/robot-rl:1"}
    assert resources[tasks["train"]["resource"]] == {
        "cpu": 4,
        "gpu": 2,
        "memory": "32Gi",
        "storage": "20Gi",
        "platform": "gpu",
    }
    assert re.fullmatch(r"\d+m", tree["workflow"]["timeout"]["exec_timeout"])


def test_the_workflow_is_valid_by_the_schema_of_robot_rl_manifest():
    if not can_validate():
        pytest.skip("needs the extra kubernetes")
    assert validate(osmo.manifests(make_flow(), PLATFORMS, FOLDER)["workflow.yaml"]) == []


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
    files = osmo.manifests(Flow(name="f", id="f", steps=(sign,)), PLATFORMS, FOLDER)
    task = yaml.safe_load(files["workflow.yaml"])["workflow"]["tasks"][0]
    assert task["credentials"] == {"robot-rl-signing": {"ROBOT_RL_SIGNING_KEY": "key"}}
    assert task["files"][1] == {"path": "/tmp/files/robot.key.pub", "localpath": "files/robot.key.pub"}
    assert files["files/robot.key.pub"] == "PUBLIC"
    assert not any("SECRET" in text for text in files.values())


@pytest.mark.parametrize(
    ("flow", "cfg", "line"),
    [
        (make_flow(), ClusterCfg(), "needs image="),
        (Flow(name="f", id="f", steps=(shell("a", "{{x}}"),)), PLATFORMS, "take its braces for a template"),
        (Flow(name="f", id="f", steps=(shell("a", "", outputs={"o": Output(path="/a")}),)), PLATFORMS, "are below"),
        (Flow(name="f", id="f", steps=(shell("a", "", outputs={"o": Output(path="a b")}),)), PLATFORMS, "letters"),
    ],
)
def test_what_osmo_cannot_take_is_refused(flow, cfg, line):
    with pytest.raises(UserError, match=line):
        osmo.manifests(flow, cfg, FOLDER)


@pytest.mark.parametrize("platforms", [{"gpu": "a"}, {"train": "a b"}])
def test_platforms_are_of_the_three_computers(platforms):
    with pytest.raises(UserError, match=r"platform\."):
        ClusterCfg(platforms=platforms)


def test_manifests_replace_manifests_and_nothing_else():
    write({"a.sh": "1", "b.sh": "2"})
    write({"a.sh": "3"})
    assert sorted(path.name for path in Path("out").iterdir()) == ["a.sh", "flow.json"]
    Path("other").mkdir()
    Path("other/file").write_text("mine")
    with pytest.raises(UserError, match="has other files in it"):
        check_folder("other")


def test_the_driver_needs_nothing_but_the_standard_library_and_ray():
    text = (Path(ray.__file__).parent / "ray_driver.py").read_text()
    modules = set(re.findall(r"^\s*(?:from|import) (\w+)", text, re.MULTILINE)) - {"__future__"}
    assert modules - set(sys.stdlib_module_names) == {"ray"}
