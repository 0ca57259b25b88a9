"""launcher= on the command line: what is refused, and what a frozen run has before any process trains it."""

import json

import pytest
import yaml

from robot_rl.cluster.frozen import launch_all
from robot_rl.cluster.launchers import REGISTRY, get_launcher, read_launcher
from robot_rl.cluster.launchers.launcher import FrozenRun, Launcher, launcher_words, read_job, write_job
from robot_rl.runs.run_dir import RunDir, config_hash
from robot_rl.runs.settings import default_tree, resolve
from robot_rl.settings.tree import override


class Recorder(Launcher):
    """A launcher that starts nothing."""

    name = "recorder"
    seen: list = []  # noqa: RUF012
    code = 0

    def submit(self, runs, folder):
        Recorder.seen += runs
        return Recorder.code


@pytest.fixture
def recorder():
    Recorder.seen, Recorder.code = [], 0
    return Recorder()


def settings(**changes):
    tree = default_tree("cartpole", "cpu")
    return resolve(override(tree, {"num_envs": 4, "max_iterations": 2, "num_steps": 4, "run_id": "mine", **changes}))


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (["launcher=torchru"], "launcher=torchru: must be one of"),
        (["launcher=torchrun", "launcher.rank=2"], "unknown key 'launcher.rank': did you mean 'launcher.ranks'?"),
        (["launcher=torchrun", "launcher.ranks=a"], "launcher.ranks=a: must be a whole number"),
        (["launcher=torchrun", "launcher.ranks=-1"], "launcher.ranks=-1: must be in [0, 1024]"),
        (["launcher=torchrun", "launcher.ranks=3"], "num_envs=4: must be a multiple of the 3 processes"),
        (["launcher=torchrun", "launcher.gpus=100"], "launcher.gpus=100: this machine has"),
        (["launcher=torchrun", "launcher.cpus=4000"], "launcher.cpus=4000: this machine has"),
        (["launcher=torchrun", "launcher.gpus=1", "launcher.ranks=2"], "launcher.ranks=2: more processes than"),
        (["launcher=torchrun", "launcher.partition=x"], "launcher.partition=x: does not affect launcher=torchrun"),
        (["launcher=torchrun", "launcher.nodes=2"], "launcher.nodes=2: needs launcher.rendezvous=<host>:<port>"),
        (["launcher=torchrun", "launcher.rendezvous=a:1"], "launcher.rendezvous=a:1: is for several machines"),
        (["launcher=torchrun", "launcher.nodes=2", "launcher.rendezvous=a"], "must be <host>:<port>"),
        (["launcher=torchrun", "launcher=local"], "launcher=torchrun and launcher=local: a run has one launcher"),
        (["launcher=torchrun", "launcher.ranks=1", "launcher.ranks=2"], "launcher.ranks is given twice"),
        (["launcher.ranks=2"], "launcher.ranks=2: says not which launcher; add launcher="),
        (["launcher=local", "launcher.ranks=2"], "launcher.ranks=2: does not affect launcher=local"),
        (["launcher=slurm", "launcher.time=soon"], "launcher.time=soon: no time"),
        (["launcher=freeze", "launcher.partition=a b"], "launcher.partition=a b: must be of letters"),
        (["-m", "seed=1,2", "launcher=local", "launcher.at_once=1,2"], "one launcher starts all runs of a sweep"),
        (["-m", "seed=1,1"], "'seed=1,1': 1 is given twice; the two runs would be the same"),
        (["-m", "seed=1,2", "--cfg", "job"], "--cfg: prints the settings of one run; leave -m out"),
        (["-m", "seed=1,2", "sweeper=optuna", "run_id=x"], "'run_id=x': does not affect sweeper=optuna"),
        (["-m", "seed=1,2", "sweeper=optuna", "sweeper.name=a/b"], "sweeper.name=a/b: must be up to 100 of"),
        (["roles.sim.count=2"], "roles.sim.count=2: is for launcher=ray; add it"),
        (["launcher=torchrun", "roles.sim.count=2"], "roles.sim.count=2: is for launcher=ray; add it"),
        (
            ["launcher=ray", "roles.sim.cont=2"],
            "'roles.sim.cont=2': is not a setting of a role; did you mean 'roles.sim.c",
        ),
        (["launcher=ray", "roles.learner.gpus=1", "launcher.gpus=1"], "are the same setting; leave one of them out"),
        (["launcher=ray", "roles.learner.gpus=1.5"], ".gpus=1.5: must be a whole number, or a part of one GPU"),
        (["launcher=ray", "launcher.gpus=0.5", "launcher.ranks=2"], "launcher.ranks=2: more processes than launcher.g"),
        (["launcher=ray", "roles.sim.count=x"], "roles.sim.count=x: must be a whole number"),
        (["launcher=ray", "roles.sim.count=-1"], "robot-rl: roles.sim.count=-1: must be in [0, 100000]"),
        (
            ["launcher=ray", "roles.sim.count=3", "launcher.nodes=2"],
            "roles.sim.count=3: must be a multiple of the 2 processes that learn",
        ),
        (
            ["launcher=ray", "roles.sim.count=4", "launcher.nodes=2", "launcher.min_nodes=1"],
            "launcher.min_nodes=1: of launcher.nodes=2 none may be missing with roles.sim.count=",
        ),
        (
            ["launcher=ray", "roles.sim.count=2", "roles.sim.least=3"],
            "roles.sim.least=3: must be at least 1 and at most roles.sim.count=2",
        ),
        (["launcher=ray", "roles.sim.count=2", "roles.sim.least=-1"], "roles.sim.least=-1: must be at least 1"),
        (["launcher=ray", "roles.sim.least=1"], "roles.sim.least=1: must be at least 1 and at most roles.sim.count=0"),
        (
            ["launcher=ray", "roles.sim.count=3", "roles.sim.engines=[mujoco,mujoco_warp]"],
            "roles.sim.engines=[mujoco,mujoco_warp]: has 2 engines, which the simulators take in turn; "
            "roles.sim.count=3 must be a multiple of them",
        ),
        (
            ["launcher=ray", "roles.sim.count=2", "roles.sim.engines=mujoco"],
            "roles.sim.engines=mujoco: must be a list; such as [mujoco]",
        ),
        (["launcher=ray", "launcher.at_once=-1"], "launcher.at_once=-1: must be in [0, 100000]"),
        (["roles.eval.every=5"], "roles.eval.every=5: is for launcher=ray; add it"),
        (["launcher=ray", "roles.eval.every=-5"], "robot-rl: roles.eval.every=-5: must be in [0, 100000000]"),
        (["launcher=ray", "roles.eval.every=5", "roles.eval.episodes=0"], "roles.eval.episodes=0: must be in [1, 6"),
        (["launcher=ray", "roles.eval.episodes=5"], "roles.eval.episodes=5: nothing is evaluated; give roles.eval.ev"),
        (["launcher=ray", "roles.teacher=elsewhere"], "roles.teacher=elsewhere: must be learner or apart"),
        (["launcher=ray", "roles.teacher.cpus=2"], "roles.teacher.cpus=2: is for roles.teacher=apart; add it"),
        (["launcher=ray", "roles.prior=apart"], "roles.prior=apart: its discriminator learns from each rollout"),
        (["staleness.max=1"], "staleness.max=1: does not take effect if the learner simulates"),
        (["overlap=true", "learner=rsl_rl"], "overlap: true, but learner=rsl_rl cannot learn from an older"),
        (["~launcher"], "'~launcher': write launcher=<name>"),
    ],
)
def test_a_launcher_that_cannot_be_is_one_line_and_leaves_nothing(words, line, run, in_tmp):
    code, _, errors = run("train", "task=cartpole", "num_envs=4", *words)
    assert code == 2
    assert line in errors
    assert errors.count("\n") == 1
    assert not (in_tmp / "runs").exists()


def test_of_a_run_with_all_iterations_done_no_process_is_started(in_tmp, run):
    small = ("num_envs=4", "num_steps=4", "max_iterations=1")
    assert run("train", "task=cartpole", *small, "run_id=mine")[0] == 0
    code, output, _ = run("train", "task=cartpole", *small, "run_id=mine", "launcher=torchrun")
    assert (code, output) == (0, "done: runs/cartpole/mine has done 1 iterations, and max_iterations=1\n")


def test_a_port_in_use_is_one_line(run, in_tmp):
    import socket

    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        words = ["launcher=torchrun", "launcher.nodes=2", f"launcher.rendezvous=127.0.0.1:{port}"]
        code, _, errors = run("train", "task=cartpole", "num_envs=4", *words)
    assert code == 2
    assert f"port {port} is in use" in errors
    assert not (in_tmp / "runs").exists()


def test_a_run_is_frozen_before_it_starts(in_tmp, recorder):
    assert launch_all([settings()], recorder) == 0
    (frozen,) = Recorder.seen
    record = yaml.safe_load((in_tmp / "runs/cartpole/mine/run.yaml").read_text())
    assert record["config"]["num_envs"] == 4
    assert record["config_sha256"] == config_hash(record["config"])
    assert record["launcher"] == {
        "name": "recorder",
        "nodes": 1,
        "ranks": 1,
        "gpus": 0,
        "cpus": 0,
        "time": "",
        "partition": "",
    }
    assert frozen.words(here=True) == ["worker", "runs/cartpole/mine"]
    assert frozen.words() == ["worker", str(in_tmp / "runs/cartpole/mine")]


def test_the_same_command_again_finds_the_run_that_waits(in_tmp, recorder):
    launch_all([settings()], recorder)
    before = (in_tmp / "runs/cartpole/mine/run.yaml").read_bytes()
    launch_all([settings()], recorder)
    assert (in_tmp / "runs/cartpole/mine/run.yaml").read_bytes() == before
    assert not (in_tmp / "runs/cartpole/mine/earlier-1").exists()


def test_where_nothing_can_be_started_no_run_is_left(in_tmp, recorder):
    from robot_rl.errors import UserError

    class Refusing(Recorder):
        def submit(self, runs, folder):
            raise UserError("launcher=refusing: no")

    with pytest.raises(UserError, match="no"):
        launch_all([settings(), settings(run_id="other")], Refusing())
    assert not (in_tmp / "runs").exists()


def test_a_sweep_freezes_each_of_its_runs(run, in_tmp, monkeypatch):
    monkeypatch.setattr("robot_rl.cluster.launchers.get_launcher", lambda name: Recorder)
    Recorder.seen, Recorder.code = [], 0
    words = ["task=cartpole", "num_envs=4", "seed=1,2", "run_id=s${seed}", "launcher=recorder"]
    code, _, errors = run("train", "-m", *words)
    assert (code, errors) == (0, "")
    assert [frozen.run_dir.run_id for frozen in Recorder.seen] == ["s1", "s2"]


def test_a_worker_trains_a_frozen_run_and_is_done_when_called_again(run, in_tmp, recorder):
    launch_all([settings()], recorder)
    code, output, errors = run("worker", "runs/cartpole/mine")
    assert (code, errors.count("robot-rl:")) == (0, 0)
    assert "done: runs/cartpole/mine" in output
    rows = [json.loads(line) for line in (in_tmp / "runs/cartpole/mine/metrics.jsonl").read_text().splitlines()]
    assert [row["iteration"] for row in rows] == [1, 2]
    record = yaml.safe_load((in_tmp / "runs/cartpole/mine/run.yaml").read_text())
    assert record["solved"][0] == "tracking/upright"
    code, output, _ = run("worker", "runs/cartpole/mine")
    assert code == 0
    assert "has done 2 iterations" in output


def test_a_frozen_run_that_was_edited_is_refused(run, in_tmp, recorder):
    launch_all([settings()], recorder)
    path = in_tmp / "runs/cartpole/mine/run.yaml"
    path.write_text(path.read_text().replace("num_envs: 4", "num_envs: 8"))
    code, _, errors = run("worker", "runs/cartpole/mine")
    assert code == 2
    assert "was changed after it was written" in errors
    assert path.is_file()


def test_an_attempt_without_a_checkpoint_is_set_aside_and_the_settings_stay(run, in_tmp, recorder):
    launch_all([settings()], recorder)
    (in_tmp / "runs/cartpole/mine/metrics.jsonl").write_text('{"iteration": 1}\n')
    code, _, errors = run("worker", "runs/cartpole/mine")
    assert code == 0
    assert "the earlier content (metrics.jsonl) is in earlier-1" in errors
    assert not (in_tmp / "runs/cartpole/mine/earlier-1/run.yaml").exists()


@pytest.mark.parametrize(
    ("words", "line"),
    [([], "run: is missing"), (["nowhere"], "run=nowhere: lacks run.yaml"), (["nowhere", "x=1"], "unknown key 'x'")],
)
def test_a_worker_without_a_run_is_one_line(words, line, run, in_tmp):
    code, _, errors = run("worker", *words)
    assert code == 2
    assert line in errors


def test_resuming_with_a_launcher_notes_what_was_changed(run, in_tmp, recorder, monkeypatch):
    launch_all([settings()], recorder)
    run("worker", "runs/cartpole/mine")
    monkeypatch.setattr("robot_rl.cluster.launchers.get_launcher", lambda name: Recorder)
    Recorder.seen = []
    code, _, errors = run("resume", "mine", "max_iterations=3", "allow_resize=true", "launcher=recorder")
    assert (code, errors) == (0, "")
    assert Recorder.seen[0].options == ("allow_resize=true",)
    record = yaml.safe_load((in_tmp / "runs/cartpole/mine/run.yaml").read_text())
    assert record["resumed"][-1]["changed"] == {"max_iterations": 3}
    assert run("worker", "runs/cartpole/mine")[0] == 0
    assert len((in_tmp / "runs/cartpole/mine/metrics.jsonl").read_text().splitlines()) == 3


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (["resume", "mine", "num_envs=8"], "num_envs=8 in 1 process: the run has 4 in 1 process; continue with as"),
        (["resume", "mine", "launcher.ranks=2"], "num_envs=4 in 2 processes: the run has 4 in 1 process"),
        (["train", "task=cartpole", "num_envs=4", "run_id=mine", "launcher.ranks=2"], "num_steps="),
    ],
)
def test_another_number_of_worlds_is_refused_before_anything_is_written(
    run, in_tmp, recorder, monkeypatch, words, line
):
    launch_all([settings()], recorder)
    run("worker", "runs/cartpole/mine")
    before = (in_tmp / "runs/cartpole/mine/run.yaml").read_bytes()
    monkeypatch.setattr("robot_rl.cluster.launchers.get_launcher", lambda name: Recorder)
    code, _, errors = run(*words, "launcher=recorder")
    assert (code, errors.count("\n")) == (2, 1)
    assert line in errors
    assert (in_tmp / "runs/cartpole/mine/run.yaml").read_bytes() == before


def test_what_a_launcher_refuses_late_is_taken_back(run, in_tmp, recorder, monkeypatch):
    launch_all([settings()], recorder)
    run("worker", "runs/cartpole/mine")
    before = (in_tmp / "runs/cartpole/mine/run.yaml").read_bytes()
    monkeypatch.setattr("robot_rl.cluster.launchers.get_launcher", lambda name: Recorder)
    Recorder.code = 2
    assert run("resume", "mine", "max_iterations=9", "launcher=recorder")[0] == 2
    assert (in_tmp / "runs/cartpole/mine/run.yaml").read_bytes() == before


def test_a_frozen_run_that_has_not_begun_says_how_it_begins(run, in_tmp, recorder, monkeypatch):
    launch_all([settings()], recorder)
    code, _, errors = run("resume", "mine")
    assert (code, "robot-rl worker runs/cartpole/mine begins it" in errors) == (86, True)
    monkeypatch.setattr("robot_rl.cluster.watch.PATIENCE_S", -1.0)
    code, output, _ = run("watch", "mine")
    assert (code, "not begun yet; robot-rl worker runs/cartpole/mine begins it" in output) == (0, True)


def test_the_hint_names_the_launcher_of_several_processes():
    record = {"name": "torchrun", "nodes": 1, "ranks": 2, "gpus": 0}
    assert launcher_words(record) == " launcher=torchrun launcher.ranks=2"
    assert launcher_words(record | {"nodes": 3, "gpus": 2}).endswith(
        "launcher.nodes=3 launcher.ranks=2 launcher.gpus=2"
    )
    assert launcher_words({"name": "local"}) == launcher_words(None) == ""


def test_a_launcher_without_submit_is_one_line(run, in_tmp):
    (in_tmp / "lacking.py").write_text(
        "from robot_rl.cluster.launchers.launcher import Launcher\nclass Bad(Launcher):\n    name = 'bad'\n"
    )
    code, _, errors = run("train", "task=cartpole", "num_envs=4", "launcher=lacking:Bad")
    assert code == 2
    assert "launcher=lacking:Bad: Bad has no submit; define it" in errors


def test_a_sweep_leaves_no_file_of_hydras(run, in_tmp):
    run("train", "-m", "task=cartpole", "num_envs=4", "seed=1,2", "launcher=freeze")
    assert sorted(path.name for path in in_tmp.iterdir()) == ["runs"]


def test_every_launcher_has_a_line_and_settings_of_plain_types():
    lines = REGISTRY.describe()
    assert {"local", "torchrun", "slurm"} <= set(lines)
    assert all(lines.values())
    assert read_launcher("slurm", {"time": 30, "partition": 7}).partition == "7"


def test_a_run_can_be_frozen_for_others_to_start(run, in_tmp):
    words = [
        "task=cartpole",
        "num_envs=4",
        "run_id=mine",
        "launcher=freeze",
        "launcher.gpus=2",
        "launcher.time=1:00:00",
    ]
    code, output, _ = run("train", *words)
    assert code == 0
    assert output.splitlines()[0] == "runs/cartpole/mine"
    record = yaml.safe_load((in_tmp / "runs/cartpole/mine/run.yaml").read_text())
    assert record["config"]["device"] == "cuda:0"
    assert (record["launcher"]["ranks"], record["launcher"]["time"]) == (2, "1:00:00")


def test_gpus_of_another_machine_choose_the_presets_of_a_gpu(recorder):
    tree = default_tree("cartpole", "auto", gpus=1)
    assert tree["num_envs"] > default_tree("cartpole", "cpu")["num_envs"]
    assert resolve(tree, gpus=1).device == "cuda:0"


def test_a_job_is_read_only_where_it_is_a_name(tmp_path):
    run_dir = RunDir(tmp_path)
    assert read_job(run_dir) is None
    write_job(run_dir, "slurm", "12_3")
    assert read_job(run_dir) == ("slurm", "12_3")
    (tmp_path / "job.json").write_text('{"launcher": "slurm", "job": "--all"}')
    assert read_job(run_dir) is None
    assert FrozenRun(run_dir=run_dir, options=("trust=true",)).command()[-1] == "trust=true"


@pytest.mark.parametrize(
    ("words", "program", "kind"),
    [
        (["launcher=kubernetes", "launcher.nodes=2", "launcher.memory=8G"], "kubectl", "kind: JobSet"),
        (["launcher=kubernetes", "launcher.target=kueue", "launcher.queue=team"], "kubectl", "kind: Job\n"),
        (["launcher=osmo", "launcher.image=reg.example.org/robot-rl:1"], "osmo", "workflow:"),
    ],
)
def test_a_manifest_of_the_run_is_submitted(run, in_tmp, monkeypatch, words, program, kind):
    (in_tmp / "bin").mkdir()
    (in_tmp / "bin" / program).write_text('#!/bin/sh\nfor file; do :; done\ncp "$file" submitted.yaml\n')
    (in_tmp / "bin" / program).chmod(0o755)
    monkeypatch.setenv("PATH", f"{in_tmp}/bin", prepend=":")
    code, out, errors = run("train", "task=cartpole", "num_envs=4", "run_id=mine", *words)
    assert (code, errors) == (0, "")
    assert "follow it: robot-rl watch mine" in out
    text = (in_tmp / "submitted.yaml").read_text()
    assert kind in text
    assert "/runs/cartpole/mine" in text
    (in_tmp / "bin" / program).write_text("#!/bin/sh\necho no such server >&2\nexit 1\n")
    code, _, errors = run("train", "task=cartpole", "num_envs=4", "run_id=other", *words)
    assert (code, errors) == (2, f"robot-rl: {words[0]}: {program} failed, no such server\n")
    assert not (in_tmp / "runs/cartpole/other").exists()


def test_a_launcher_of_the_former_protocol(in_tmp, monkeypatch):
    base = "from robot_rl.cluster.launchers.launcher import Launcher\n"
    (in_tmp / "former.py").write_text(base + "class Former(Launcher):\n    launch = lambda *_: 7\n")
    monkeypatch.syspath_prepend(in_tmp)
    with pytest.warns(FutureWarning, match="Former.launch is submit now"):
        assert get_launcher("former:Former")().submit([], in_tmp) == 7
