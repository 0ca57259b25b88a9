"""export, eval, video, play, report and bench: a tiny run from start to end, and what is refused."""

import json
import shutil

import pytest
from robot_rl_deploy.bundle import read_bundle
from robot_rl_deploy.verify import verify_bundle
from robot_rl_envs import render

from robot_rl.cli import eval as eval_command
from robot_rl.cli.main import main
from robot_rl.runs.export import exported
from robot_rl.runs.run_dir import RunDir


@pytest.fixture(scope="module")
def exported_once(small_run, tmp_path_factory):
    """The bundle of a tiny run, to be copied."""
    folder = tmp_path_factory.mktemp("exported") / "bundle"
    assert main(["export", f"run={small_run.name}", f"root={small_run.parents[1]}", f"out={folder}"]) == 0
    return folder


@pytest.fixture
def bundle(exported_once, in_tmp):
    """A bundle of the test's own."""
    return shutil.copytree(exported_once, in_tmp / "bundle")


@pytest.fixture
def mine(small_run, in_tmp):
    """A tiny run of the test's own."""
    shutil.copytree(small_run.parents[1], in_tmp / "runs", symlinks=True)
    return RunDir.find("latest")


def test_export_eval_report_of_a_run(run, mine):
    code, out, _ = run("export")
    assert code == 0
    assert str(mine.policy) in out
    report = verify_bundle(mine.policy)
    training = report.contract.training
    assert (training.run_id, training.task, training.iteration) == (mine.run_id, "cartpole", 2)
    code, out, _ = run("eval", f"run={mine.run_id}", "episodes=3", "seconds=2")
    assert code == 0
    result = json.loads(mine.eval_file.read_text())
    assert result["episodes"] == 3
    assert set(result["torch"]) == set(result["onnx"])
    assert {"mean", "std"} <= set(result["onnx"]["torque_rms"])
    assert result["agreement"]["actions"]
    assert "torch and ONNX agree" in out
    assert list(result["metrics"]) == list(result["torch"])
    rows = [[cell.strip() for cell in line.split("│")[1:-1]] for line in out.splitlines() if line.startswith("│")]
    assert rows[0][0] == "upright"
    assert rows[0][3:] == ["1", "Cos of one joint's angle: 1 upright; time mean"]
    assert [row[0] for row in rows[1:] if row[0]][:3] == ["failure_rate", "ended/off_rail", "torque_rms"]
    assert "|position| exceeds 1.75 rad or m" in out
    assert run("report")[0] == 0
    page = (mine.path / "report.html").read_text()
    assert mine.run_id in page
    assert "Time to 0.6" in page
    assert "Cos of one joint&#x27;s angle: 1 upright; time mean" in page


@pytest.mark.long
def test_eval_exports_what_is_not_exported_or_outdated(run, mine):
    assert exported(mine) == mine.policy
    digest = read_bundle(mine.policy).digest
    assert read_bundle(exported(mine)).digest == digest
    assert run("resume", mine.run_id, "max_iterations=3")[0] == 0
    assert read_bundle(exported(mine)).contract.training.iteration == 3


def test_eval_with_another_task_writes_only_to_out(run, mine, in_tmp):
    words = ["eval", "episodes=2", "seconds=1.5", "sim.timestep=0.02", "sim.decimation=2"]
    assert run(*words)[0] == 0
    assert not mine.eval_file.exists()
    assert run(*words, "out=figures.json")[0] == 0
    assert json.loads((in_tmp / "figures.json").read_text())["episodes"] == 2


@pytest.mark.usefixtures("bundle")
def test_a_bundle_is_evaluated_without_its_run(run, in_tmp):
    code, out, _ = run("eval", "policy=bundle", "episodes=2", "seconds=1.5", "out=b.json")
    assert code == 0
    assert "torch" not in json.loads((in_tmp / "b.json").read_text())
    assert "onnx" in out


def test_a_disagreement_is_shown_in_capitals(capsys):
    good = {"mean": 1.0, "std": 0.1}
    agreement = {"actions": False, "metrics": True, "action_error": 0.1, "action_bound": 1e-4}
    result = {"torch": {"power": good}, "onnx": {"power": None}, "episodes": 2, "seconds": 5.0, "agreement": agreement}
    eval_command.show("run", result)
    assert "DO NOT AGREE" in capsys.readouterr().out


@pytest.mark.usefixtures("bundle", "gl")
def test_video_of_a_run_and_of_a_bundle(run, mine, in_tmp):
    sizes = ["seconds=0.2", "width=160", "height=96"]
    code, _, err = run("video", *sizes)
    assert code == 0, err
    assert mine.video_file.stat().st_size > 0
    assert run("video", "policy=bundle", *sizes)[0] == 0
    assert (in_tmp / "cartpole.mp4").stat().st_size > 0


def test_without_opengl_the_error_names_what_to_install(run, mine, monkeypatch):
    def no_gl(*_, **__):
        raise render.NoGLError(render.NO_GL)

    monkeypatch.setattr(render, "Renderer", no_gl)
    code, _, err = run("video", "seconds=0.2")
    assert (code, len(err.splitlines())) == (2, 1)
    assert "libegl1" in err
    assert not mine.video_file.exists()


def test_play_serves_a_page_for_a_while(run, mine):
    code, out, err = run("play", "port=0", "seconds=0.5")
    assert code == 0, err
    assert f"{mine.run_id}: http://" in out


def test_bench_of_the_environment(run, in_tmp):
    words = ["bench", "env", "task=cartpole", "num_envs=2", "repeats=2", "device=cpu", "out=b.json"]
    code, out, _ = run(*words)
    assert code == 0
    result = json.loads((in_tmp / "b.json").read_text())
    assert set(result) >= {"name", "machine", "versions", "rows", "ratio"}
    assert set(result["rows"][0]) >= {"who", "value", "unit", "spread"}
    assert len(result["rows"]) == 2
    assert f"ratio ours / rival: {result['ratio']:.3f}" in out


BAD = [
    (["eval"], "no run in runs; robot-rl train makes one"),
    (["eval", "run=../../etc"], "not a run in runs"),
    (["eval", "policy=go2_flt"], "policy=go2_flt: no such bundle"),
    (["eval", "policy=.", "run=latest"], "name one of the two"),
    (["eval", "policy=."], "contract.json is missing"),
    (["eval", "episodes=0"], "episodes=0: must be in [1, 1048576]"),
    (["eval", "seconds=0"], "seconds=0.0: must be in (0, 3600]"),
    (["eval", "episods=3"], "did you mean 'episodes'?"),
    (["video", "seconds=-1"], "seconds=-1.0"),
    (["video", "out=x.gif"], "out=x.gif: must end in .mp4"),
    (["video", "robots=3"], "robots=3"),
    (["video"], "no run in runs"),
    (["play", "prt=1"], "did you mean 'port'?"),
    (["export", "run=nope"], "no run in runs"),
    (["report", "run=nope"], "no run in runs"),
    (["bench"], "must be one of env, learner"),
    (["bench", "envs"], "did you mean 'env'?"),
    (["bench", "env", "task=go2"], "task=go2"),
    (["bench", "env", "num_envs=0"], "num_envs=0: must be"),
    (["bench", "env", "repeats=1"], "repeats=1: must be in [2, 2147483647]"),
    (["bench", "env", "rewards.trck.weight=1"], "did you mean 'rewards.track.weight'?"),
    (["bench", "learner", "task=x"], "unknown key 'task'"),
    (["bench", "learner", "hidden=8"], "hidden=8: must be a list"),
]


@pytest.mark.parametrize(("words", "message"), BAD)
def test_bad_input_is_one_line_exit_2_and_nothing_written(run, in_tmp, words, message):
    code, out, err = run(*words)
    assert (code, out) == (2, "")
    assert message in err
    assert len(err.splitlines()) == 1
    assert list(in_tmp.iterdir()) == []


@pytest.mark.parametrize("file", ["policy.onnx", "contract.json", "golden.npz", "SHA256SUMS"])
def test_a_damaged_bundle_is_refused(run, bundle, file):
    path = bundle / file
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(bytes(content))
    code, _, err = run("eval", "policy=bundle", "episodes=2", "seconds=1.5")
    assert code == 2
    assert len(err.splitlines()) == 1
    path.unlink()
    assert run("video", "policy=bundle")[0] == 2


def test_a_place_that_cannot_be_written_to(run, mine, in_tmp):
    (in_tmp / "file").write_text("")
    code, _, err = run("bench", "env", "task=cartpole", "num_envs=2", "repeats=2", "out=file/b.json")
    assert (code, len(err.splitlines())) == (2, 1)
    assert "not a directory" in err or "file exists" in err
