"""The flow that comes with the project: its steps and gates for each task, copies of it, and what it refuses."""

import json
from pathlib import Path

import pytest
from robot_rl_tasks.registry import REGISTRY, get_task

from robot_rl.cli.main import main
from robot_rl.cluster.flow import load
from robot_rl.cluster.flow.dag import Computer, FlowCfg, gate_owner
from robot_rl.cluster.flow.flows import three_computers
from robot_rl.cluster.flow.load import copy_flow, make
from robot_rl.errors import UserError

FITS = [name for name in REGISTRY.files() if (task := get_task(name)).deployable and not task.robots]


def flow_of(task="go2_flat", **more):
    return make("three_computers", FlowCfg(task=task, id="f1", **more))


def bounds(flow, step):
    found = next(each for each in flow.steps if each.gates and gate_owner(each) == step)
    return {gate.name: (gate.op, gate.bound) for gate in found.gates}


def words(flow, name):
    return " ".join(flow.words(flow[name]))


@pytest.mark.parametrize("task", FITS)
def test_every_task_of_one_robot_has_a_flow_with_gates(task):
    flow = flow_of(task)
    names = [step.name for step in flow.order()]
    assert names[:3] == ["train", "export", "evaluate"]
    assert names[-2:] == ["edge", "gate_edge"]
    solved = get_task(task).solved
    assert len(bounds(flow, "evaluate")) == (2 if solved is None else 3)
    assert [step.name for step in flow.steps if step.resources.computer is Computer.EDGE] == ["edge"]
    assert {step.name for step in flow.steps if step.resources.computer is Computer.TRAIN} == {"train", "export"}


def test_the_gates_of_a_walking_go2():
    flow = flow_of()
    assert bounds(flow, "evaluate") == {
        "velocity_error": ("<=", 0.2),
        "failure_rate": ("<=", 0.05),
        "action_error": ("<=", 1e-4),
    }
    assert bounds(flow, "disturbed")["failure_rate"] == ("<=", 0.10)
    assert bounds(flow, "sim2sim")["stopped"] == ("<=", 0.0)
    assert bounds(flow, "edge") == {"p99": ("<=", pytest.approx(20_000.0))}  # 50 Hz [us]


def test_a_certificate_is_made_after_all_gates_and_goes_into_the_package():
    """Nothing reads the bundle while it is replaced; what is packed, signed and timed is the certified bundle."""
    assert "certify" not in [step.name for step in flow_of(key="robot.key").steps]
    flow = flow_of(key="robot.key", certify=1000)
    names = [step.name for step in flow.order()]
    assert names[names.index("certify") :] == ["certify", "gate_certify", "sign", "package", "edge", "gate_edge"]
    assert "budget=1000" in words(flow, "certify")
    assert bounds(flow, "certify") == {"success": (">=", 0.95), "delay": (">=", 0.02)}
    assert {"certify", "gate_certify"} <= {*flow["sign"].needs()}
    assert "certify" in flow["edge"].needs()
    assert flow.path("certify", "bundle") == flow.path("export", "bundle")


@pytest.mark.parametrize(
    ("word", "unless"),
    [("precision=int8", "agreement.actions"), ("seed=2", ""), ("precision.rollout=fp8", "agreement.actions")],
)
def test_a_policy_in_less_than_float32_agrees_within_the_bound_of_its_arithmetic(word, unless):
    gates = {gate.name: gate for gate in flow_of(train=(word,))["gate_evaluate"].gates}
    assert (gates["action_error"].bound, gates["action_error"].unless) == (1e-4, unless)


def test_a_task_that_is_solved_from_below_has_a_gate_from_below():
    assert bounds(flow_of("cartpole"), "evaluate")["upright"] == (">=", 0.6)


def test_nothing_is_packaged_before_every_gate_is_passed():
    flow = flow_of(key="robot.key")
    before = {"gate_evaluate", "gate_other_engine", "gate_disturbed", "gate_sim2sim"}
    assert before <= set(flow["sign"].needs())
    assert before <= set(flow_of()["package"].needs())
    assert "sign" in flow["package"].needs()
    assert "package" in flow["edge"].needs()
    assert "--signed-by robot.key.pub" in words(flow, "edge")


def test_it_is_pushed_and_randomized_harder():
    assert "events.push.xy=1 " in words(flow_of(), "disturbed")
    assert "events.friction.lo=0.3 " in words(flow_of(), "disturbed")
    flow = flow_of("cartpole")
    assert not any(step.name == "disturbed" for step in flow.steps)
    assert "disturbed is omitted" in flow.notes[0]


def test_the_other_engine_is_the_one_that_it_was_not_trained_in():
    assert "engine=mujoco_warp" in words(flow_of(), "other_engine")
    assert "engine=mujoco " in words(flow_of(gpus=1), "other_engine")
    assert "engine=mujoco " in words(flow_of(train=("engine=mujoco_warp",)), "other_engine")


def test_settings_go_to_the_training():
    flow = flow_of(train=("max_iterations=60", "~events.push"), root="elsewhere")
    assert words(flow, "train").endswith("task=go2_flat run_id=f1 root=elsewhere max_iterations=60 ~events.push")
    assert flow.path("train", "run") == "elsewhere/go2_flat/f1"
    assert "events.push" not in words(flow, "disturbed")


def test_a_launcher_on_this_machine_goes_to_the_training_and_nowhere_else():
    flow = flow_of(train=("launcher=torchrun", "launcher.ranks=2"))
    assert words(flow, "train").endswith("launcher=torchrun launcher.ranks=2")
    assert "launcher" not in words(flow, "evaluate")


def test_a_setting_of_another_learner_is_known_with_it():
    assert "learner=flashsac" in words(flow_of(train=("learner=flashsac", "flashsac.batch=256")), "train")


def test_logs_are_of_the_other_flow():
    with pytest.raises(UserError, match=r"log=a\.mcap: is of the flow real_to_sim"):
        make("three_computers", FlowCfg(task="go2_flat", id="f1", log=("a.mcap",)))


def test_a_copy_makes_the_same_flow(tmp_path):
    copy = copy_flow("three_computers", str(tmp_path / "mine.py"))
    cfg = FlowCfg(task="go2_flat", id="f1")
    assert make(str(copy), cfg) == make("three_computers", cfg)
    assert list(load.REGISTRY.describe()) == ["real_to_sim", "three_computers"]


@pytest.mark.parametrize("to", ["mine.txt", "missing/mine.py", "there.py"])
def test_a_copy_replaces_nothing(tmp_path, monkeypatch, to):
    monkeypatch.chdir(tmp_path)
    Path("there.py").write_text("mine")
    with pytest.raises(UserError, match="copy="):
        copy_flow("three_computers", to)
    assert Path("there.py").read_text() == "mine"


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("x = 1", "does not have a function make_flow"),
        ("def make_flow(cfg): return 7", "returns int"),
        ("import nothing_of_that_name", "No module named"),
        ("def (", "invalid syntax"),
    ],
)
def test_a_file_that_makes_no_flow_is_refused(tmp_path, text, line):
    (tmp_path / "mine.py").write_text(text)
    with pytest.raises(UserError, match=line):
        make(str(tmp_path / "mine.py"), FlowCfg(task="go2_flat", id="f1"))


REFUSED = [
    ("three_computer task=cartpole", "did you mean 'three_computers'"),
    ("task=cartpole", "name a flow first"),
    ("three_computers", "task= is missing"),
    ("three_computers task=cartpol", "did you mean 'cartpole'"),
    ("three_computers task=go2_pair_carry", "is for several robots"),
    ("three_computers task=hopper_v5", "no robot can measure"),
    ("three_computers task=gym:CartPole-v1", "is not simulated by us"),
    ("three_computers task=cartpole target=osm", "did you mean 'osmo'"),
    ("three_computers task=cartpole gates.uprigth=0.1", "did you mean 'upright'"),
    ("three_computers task=cartpole gates.upright=x", "finite number"),
    ("three_computers task=cartpole gates.upright=1 gates.upright=2", "given twice"),
    ("three_computers task=cartpole train.max_iteration=3", "did you mean 'max_iterations'"),
    ("three_computers task=cartpole train.run_id=x", "is set by the flow; give id="),
    ("three_computers task=cartpole train.launcher=slurm", "ends before the training does"),
    ("three_computers task=cartpole train.launcher.ranks=2", "add train.launcher=<name>"),
    ("three_computers task=cartpole key=nokey", "nokey"),
    ("three_computers task=cartpole id=../x", "id=../x: must be up to 100 of"),
    ("three_computers task=cartpole id=12", "must begin with a letter"),
    ("three_computers task=cartpole platform.train=x", "platform.train: is for target=osmo"),
    ("three_computers task=cartpole gpus=2", "gpus: is for target=osmo, this is target=local"),
    ("three_computers task=cartpole target=osmo platform.gpu=x", "is not a computer"),
    (
        "three_computers task=cartpole target=slurm",
        "run robot-rl flow itself in a job of the cluster",
    ),
    ("three_computers task=cartpole target=ray", "trainings by launcher=ray"),
    ("three_computers task=cartpole target=osmo", "needs image="),
    ("mine.py task=cartpole", "mine.py: does not exist"),
    ("no.module:here task=cartpole", "cannot import no"),
    ("resume", "name the flow"),
    ("resume nope", "no such flow"),
    ("gate", "give a JSON file"),
]


@pytest.mark.parametrize(("line", "why"), REFUSED)
def test_what_cannot_be_done_is_refused_in_one_line_and_nothing_is_written(tmp_path, monkeypatch, capsys, line, why):
    monkeypatch.chdir(tmp_path)
    assert main(["flow", *line.split()]) == 2
    out, err = capsys.readouterr()
    assert why in err
    assert (out, err.count("\n")) == ("", 1)
    assert list(tmp_path.iterdir()) == []


def test_a_workflow_is_written_replaced_and_nothing_else(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    words = ["flow", "three_computers", "task=cartpole", "target=osmo", "image=a:1", "id=f1"]
    for _ in range(2):
        assert main(words) == 0
        assert "submit with: osmo workflow submit flows/f1.yaml" in capsys.readouterr().out
    assert Path("flows/f1.yaml").read_text().startswith(f"# Made by:\n# robot-rl {' '.join(words)}\n")
    assert [path.name for path in tmp_path.iterdir()] == ["flows"]
    Path("flows/f1.yaml").write_text("mine")
    assert main(words) == 2
    assert "is there already and is not a workflow of robot-rl flow" in capsys.readouterr().err


MINE = """
import sys
from pathlib import Path
from robot_rl.cluster.flow.dag import Flow, Output, Step
Path("ran").open("a").write("x")
def make_flow(cfg):
    step = Step(name="one", command=(sys.executable, "-c", "open('one.txt', 'w').write('1')"),
                outputs={"file": Output(path="one.txt")})
    return Flow(name="mine", id=cfg.id, steps=(step,))
"""


@pytest.fixture
def _mine(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    Path("mine.py").write_text(MINE)
    assert main(["flow", "mine.py", "task=any", "id=m1"]) == 0


@pytest.mark.usefixtures("_mine")
def test_a_flow_of_ones_own_is_resumed_by_its_id(capsys):
    assert main(["flow", "resume", "m1"]) == 0
    assert "one: done before, not repeated" in capsys.readouterr().out


@pytest.mark.usefixtures("_mine")
def test_a_flow_from_somebody_else_runs_its_file_only_with_consent(monkeypatch, tmp_path, capsys):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "another"))
    before = Path("ran").read_text()
    assert main(["flow", "resume", "m1"]) == 2
    assert "was not begun here and would run mine.py; read it, and give trust=true" in capsys.readouterr().err
    assert Path("ran").read_text() == before
    assert main(["flow", "resume", "m1", "trust=true"]) == 0


@pytest.mark.usefixtures("_mine")
def test_an_id_stays_with_its_flow_and_task(capsys):
    assert main(["flow", "mine.py", "task=other", "id=m1"]) == 2
    assert "id=m1: is there with task=any; give another id=" in capsys.readouterr().err


@pytest.mark.long
def test_a_cartpole_from_the_training_to_the_binary(tmp_path, monkeypatch, capsys):
    """The whole flow, then a bound that fails: it is named, and nothing is repeated."""
    pytest.importorskip("robot_rl_runtime")
    monkeypatch.chdir(tmp_path)
    # Every step and gate, with few and short episodes.
    for name, value in (("EPISODES", 20), ("SECONDS", 2), ("OTHER_EPISODES", 2), ("OTHER_SECONDS", 1)):
        monkeypatch.setattr(three_computers, name, value)
    monkeypatch.setattr(three_computers, "BENCH_SECONDS", 1)
    assert main(["sign", "new=robot.key"]) == 0
    short = ["train.max_iterations=20", "train.num_envs=128", "gates.upright=-1", "gates.failure_rate=1"]
    code = main(["flow", "three_computers", "task=cartpole", "id=f1", "key=robot.key", "jobs=2", *short])
    assert code == 0, capsys.readouterr()
    result = json.loads(Path("runs/.flows/f1/flow.json").read_text())
    assert {step["state"] for step in result["steps"]} == {"done"}
    assert all(gate["holds"] for gate in result["gates"])
    assert Path("runs/cartpole/f1/policy/SHA256SUMS.sig").exists()
    assert list(Path("runs/.flows/f1/package").glob("cartpole-f1.tar.gz"))
    capsys.readouterr()
    assert main(["flow", "resume", "f1", "gates.evaluate.upright=2"]) == 1
    out, err = capsys.readouterr()
    assert "train: done before, not repeated" in out
    assert "gate evaluate.upright FAILED: onnx.upright.mean is " in err
    assert err.count("\n") == 1


def test_a_robots_log_comes_before_the_training():
    """What the log shows is what the training reads and the certificate is compared with; strengths are the file's."""
    flow = make("real_to_sim", FlowCfg(task="go2_flat", id="f1", log=("a.mcap", "b.mcap"), held="c.mcap"))
    names = [step.name for step in flow.order()]
    assert names[:3] == ["identify", "gate_identify", "train"]
    assert words(flow, "identify") == (
        "robot-rl identify a.mcap b.mcap held=c.mcap robot=unitree_go2 task=go2_flat "
        "out=runs/.flows/f1/robot.identified.json"
    )
    for name, word in (("train", "randomize.identified_from="), ("certify", "identified=")):
        assert words(flow, name).endswith(f" {word}runs/.flows/f1/robot.identified.json")
    assert "events.push.xy" in words(flow, "disturbed")
    assert "events.motors" not in words(flow, "disturbed")
    with pytest.raises(UserError, match="log: is missing"):
        make("real_to_sim", FlowCfg(task="go2_flat", id="f1"))
    with pytest.raises(UserError, match="is set by the flow"):
        make("real_to_sim", FlowCfg(task="go2_flat", id="f1", log=("a",), train=("randomize.identified_from=x",)))
