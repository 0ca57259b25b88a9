"""The dispatcher: help, exit codes, one line for an error that the user can fix."""

import errno
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from robot_rl_deploy.contract import ContractError

from robot_rl.cli import main as main_module
from robot_rl.cli.main import COMMAND_GROUPS, COMMANDS, guarded, main
from robot_rl.errors import ExitCode, Interrupted, NotRetryableError, PeerError, UserError
from robot_rl.learn.algorithms import REGISTRY


def test_help_names_every_command_in_its_group(run):
    code, out, err = run("--help")
    assert (code, err) == (0, "")
    for group, commands in COMMAND_GROUPS.items():
        rows = out.partition(f"\n{group}:\n")[2].partition("\n\n")[0].splitlines()
        assert tuple(row.split()[0] for row in rows) == commands
        assert max(map(len, rows)) <= 120
    assert len(set(COMMANDS)) == len(COMMANDS)
    assert run()[0] == 2


def test_every_module_of_a_command_is_in_a_group():
    folder = Path(main_module.__file__).parent
    found = [path.stem for path in folder.glob("*.py") if re.search(r"^def run\(", path.read_text(), re.MULTILINE)]
    assert {name.replace("_", "-") for name in found} == set(COMMANDS)


def test_version(run):
    code, out, _ = run("--version")
    assert code == 0
    assert out.startswith("robot-rl 0.")


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_help_that_shows_how_it_is_called(run, command):
    code, out, _ = run(command, "--help")
    assert code == 0
    assert f"usage: robot-rl {command}" in out
    assert max(len(line) for line in out.splitlines()) <= 120


def test_help_of_train_names_tasks_engines_and_overrides(run):
    _, out, _ = run("train", "--help")
    for word in ("cartpole", "go2_flat", "mujoco_warp", "rewards.track.weight", "-m", "init_from"):
        assert word in out


@pytest.mark.parametrize("learner", sorted(REGISTRY.names()))
def test_help_of_a_learner_describes_every_setting(run, learner):
    code, out, _ = run("train", f"learner={learner}", "--help")
    rows = [line for line in out.splitlines() if re.match(r"  [a-z_.]+=", line)]
    assert code == 0
    assert [row for row in rows if len(row.split()) < 2] == []
    assert len(rows) > 40


def test_help_of_a_launcher_uses_the_words_of_the_command_line(run):
    _, out, _ = run("train", "launcher=ray", "--help")
    assert re.search(r"^  roles\.sim\.count=0 +Simulators apart", out, flags=re.MULTILINE)
    assert "  launcher.nodes=1 " in out


def test_help_imports_nothing_heavy():
    code = (
        "import sys; from robot_rl.cli.main import main; main(['--help']); main(['train', '--help']); "
        "heavy = {'torch', 'mujoco', 'warp', 'hydra', 'numpy'} & set(sys.modules); sys.exit(' '.join(heavy) or 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")


def test_an_unknown_command_gets_a_suggestion(run):
    code, out, err = run("trian")
    assert (code, out) == (2, "")
    assert err == "robot-rl: unknown command 'trian': did you mean 'train'?\n"


@pytest.mark.parametrize("error", [UserError("a: 1 is wrong\nfix it"), ContractError("a: 1 is wrong\nfix it")])
def test_what_the_user_can_fix_is_one_line_and_exit_2(capsys, error):
    def fail():
        raise error

    assert guarded(fail) == 2
    assert capsys.readouterr().err == "robot-rl: a: 1 is wrong fix it\n"


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (FloatingPointError("the loss is not finite"), ExitCode.GIVE_UP),
        (NotRetryableError("run=a: no checkpoint can be loaded"), ExitCode.GIVE_UP),
        (PeerError("process 0 of 2 lost the others"), ExitCode.FAULT),
    ],
)
def test_what_would_fail_again_has_another_exit_code(capsys, error, code):
    def fail():
        raise error

    assert guarded(fail) == code
    assert capsys.readouterr().err == f"robot-rl: {error}\n"


def test_a_full_disk_is_74(capsys):
    def fail():
        raise OSError(errno.ENOSPC, "No space left on device", "/data/runs")

    def fail_elsewhere():
        try:
            fail()
        except OSError:
            raise RuntimeError("could not serialize") from None

    def fail_in_a_library():
        raise RuntimeError("I/O error: No space left on device (os error 28)")

    for case in (fail, fail_elsewhere, fail_in_a_library):
        assert guarded(case) == 74
        assert capsys.readouterr().err.startswith("robot-rl: the disk is full: ")


def test_a_directory_that_only_can_be_read_is_one_line(capsys):
    def fail():
        raise OSError(errno.EROFS, "Read-only file system", "/data/runs/metrics.jsonl")

    assert guarded(fail) == 2
    assert capsys.readouterr().err == "robot-rl: cannot use /data/runs/metrics.jsonl: read-only file system\n"


def test_a_signal_behind_a_failure_leaves_its_line_and_its_code(capsys, monkeypatch):
    def lost(*_):
        raise PeerError("lost the others")

    def late():
        os.kill(os.getpid(), signal.SIGTERM)
        return (ContractError,)

    monkeypatch.setattr(main_module, "dispatch", lost)
    monkeypatch.setattr(main_module, "_user_errors", late)
    before = signal.getsignal(signal.SIGTERM)
    assert main_module.main(["train", "task=cartpole"]) == 1
    assert capsys.readouterr().err == "robot-rl: lost the others\n"
    assert signal.getsignal(signal.SIGTERM) == before


def test_another_error_of_the_system_is_no_full_disk():
    def fail():
        raise OSError(errno.EIO, "Input/output error")

    with pytest.raises(OSError, match="Input/output"):
        guarded(fail)


def test_a_fault_of_the_program_keeps_its_traceback():
    def fail():
        raise ValueError("a bug")

    with pytest.raises(ValueError, match="a bug"):
        guarded(fail)


def test_an_interruption_prints_how_to_resume(capsys, tmp_path):
    run = Path("cartpole") / "20260101-100000-1-aaaa"
    checkpoint, default = (root / run / "checkpoints" / "000007" for root in (tmp_path, Path("runs")))

    def stop():
        raise Interrupted(checkpoint, 7)

    def stop_without_a_run():
        raise Interrupted(None, 7)

    def stop_early():
        raise KeyboardInterrupt

    assert guarded(stop) == 130
    assert capsys.readouterr().err.endswith(f"continue with: robot-rl resume 20260101-100000-1-aaaa root={tmp_path}\n")
    checkpoint = default
    assert guarded(stop) == 130
    assert capsys.readouterr().err.endswith("continue with: robot-rl resume 20260101-100000-1-aaaa\n")
    assert guarded(stop_without_a_run) == 130
    assert guarded(stop_early) == 130
    assert "resume" not in capsys.readouterr().err


def test_the_console_script_exits_with_the_code():
    done = subprocess.run([sys.executable, "-m", "robot_rl.cli.main", "no"], capture_output=True, text=True)
    assert done.returncode == 2
    assert len(done.stderr.splitlines()) == 1


def test_main_reads_the_words_of_the_process(monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["robot-rl", "--help"])
    assert main() == 0
    assert capsys.readouterr().out == main_module.usage()


def test_an_unknown_rendering_backend_is_one_line(monkeypatch, capsys):
    monkeypatch.setenv("MUJOCO_GL", "foo")
    assert main(["list"]) == 2
    line = capsys.readouterr().err
    assert line.startswith("robot-rl: MUJOCO_GL=foo: ")
    assert line.count("\n") == 1


def test_an_empty_root_is_refused(capsys):
    assert main(["train", "task=cartpole", "root="]) == 2
    assert "root" in capsys.readouterr().err
