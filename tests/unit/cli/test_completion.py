"""robot-rl completion: the words that may follow, and the scripts in real shells."""

import json
import os
import pty
import shutil
import subprocess
import sys

import pytest

from robot_rl.cli import suggestions as module
from robot_rl.cli.commands import COMMANDS
from robot_rl.cli.completion import SHELLS
from robot_rl.cli.suggestions import learn, suggestions

HEAVY = {"torch", "mujoco", "warp", "hydra", "yaml"}


@pytest.fixture
def known(tmp_path, monkeypatch):
    """The settings of cartpole are kept, others not; returns what would be read in the background."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    learn("cartpole")
    asked = []
    monkeypatch.setattr(module, "_learn_in_background", lambda *names: asked.append(names))
    return asked


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("robot-rl tra", ["train"]),
        ("robot-rl", [*COMMANDS, "--help", "--version"]),
        ("robot-rl train task=cartpo", ["task=cartpole"]),
        ("robot-rl train -m task=cartpole,cartpo", ["task=cartpole,cartpole"]),
        ("robot-rl check robot=unitree_", ["robot=unitree_g1", "robot=unitree_go2"]),
        ("robot-rl play policy=panda_re", ["policy=panda_reach"]),
        ("robot-rl train learner=f", ["learner=flashsac"]),
        ("robot-rl train launcher=sl", ["launcher=slurm"]),
        ("robot-rl train launcher=slurm launcher.part", ["launcher.partition="]),
        ("robot-rl train launcher.part", []),
        ("robot-rl train device=c", ["device=cpu"]),
        ("robot-rl train learner=flashsac flashsac.wa", ["flashsac.warm_up="]),
        ("robot-rl train task=cartpole rewards.up", ["rewards.upright."]),
        ("robot-rl train task=cartpole rewards.upright.w", ["rewards.upright.weight="]),
        ("robot-rl train task=cartpole rewards.upright.weight=", ["rewards.upright.weight=1.0"]),
        ("robot-rl train task=cartpole ~rewards.up", ["~rewards.upright", "~rewards.upright."]),
        ("robot-rl train task=cartpole actor.hidden=", ["actor.hidden=[64,64]"]),
        ("robot-rl train task=cartpole overlap=", ["overlap=true", "overlap=false"]),
        ("robot-rl train task=cartpole graph=o", ["graph=on", "graph=off"]),
        ("robot-rl train task=cartpole tas", []),
        ("robot-rl train task=cartpole --c", ["--config", "--cfg"]),
        ("robot-rl train --cfg ", ["job"]),
        ("robot-rl train --config ", []),
        ("robot-rl new ro", ["robot", "robot=", "root="]),
        ("robot-rl new robot mine fro", ["from="]),
        ("robot-rl runs pr", ["prune"]),
        ("robot-rl runs prune ye", ["yes="]),
        ("robot-rl runs prune yes=", ["yes=true", "yes=false"]),
        ("robot-rl completion ", list(SHELLS)),
        ("robot-rl eval run=", []),
        ("robot-rl no-such-command x", []),
    ],
)
def test_words_that_may_follow(known, monkeypatch, line, words):
    monkeypatch.setattr(module, "_devices", lambda: ["auto", "cpu"])
    assert suggestions(line) == words
    assert known == []


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_is_completed(known, command):
    assert isinstance(suggestions(f"robot-rl {command} "), list)


def test_runs_are_named_the_newest_first(known, tmp_path):
    for number, name in enumerate(("20261125-134500-1-33ce", "20261126-134500-1-33ce", "mine")):
        (tmp_path / "runs" / "cartpole" / name).mkdir(parents=True)
        file = tmp_path / "runs" / "cartpole" / name / "run.yaml"
        file.touch()
        os.utime(file, (number, number))
    names = ["latest", "cartpole/latest", "20261126-134500-1-33ce", "20261125-134500-1-33ce", "mine"]
    assert suggestions("robot-rl resume ") == [*names, *suggestions("robot-rl resume allow_resiz"), *names_of("resume")]
    assert suggestions("robot-rl eval run=c") == ["run=cartpole/latest"]
    assert suggestions("robot-rl eval root=elsewhere run=") == []
    assert suggestions("robot-rl runs diff mine 20261126") == ["20261126-134500-1-33ce"]


def names_of(command):
    """The keys of a command behind its first, allow_resize=."""
    return [word for word in suggestions(f"robot-rl {command} ") if word.endswith("=") and word != "allow_resize="]


def test_settings_that_are_not_kept_are_read_in_the_background(known, monkeypatch):
    assert suggestions("robot-rl train task=go2_flat ppo.gam") == ["ppo.gamma="]
    assert suggestions("robot-rl train task=go2_flat rewards.") == []
    assert known == [("go2_flat", ""), ("go2_flat", "")]
    file = module._file("cartpole", "")
    file.write_text(json.dumps({**json.loads(file.read_text()), "stamp": [1, 2]}))
    assert suggestions("robot-rl train task=cartpole rewards.up") == ["rewards.upright."]
    assert known[2:] == [("cartpole", "")]
    file.write_text("{")
    assert suggestions("robot-rl train task=cartpole seed=") == ["seed=1"]


def test_nothing_unknown_is_read_in_the_background(monkeypatch):
    def refuse(*_, **__):
        raise AssertionError

    monkeypatch.setattr(module.subprocess, "Popen", refuse)
    for task, learner in (("no_such_task", ""), ("my_module:make", ""), ("cartpole", "my_module:Learner")):
        module._learn_in_background(task, learner)


def test_a_training_keeps_the_settings_of_its_task(known, run):
    module._file("cartpole", "").unlink()
    assert run("train", "task=cartpole", "--cfg", "job")[0] == 0
    assert json.loads(module._file("cartpole", "").read_text())["settings"]["rewards.upright.weight"] == 1.0
    assert run("train", "task=cartpole", "learner=flashsac", "--cfg", "job")[0] == 0
    assert suggestions("robot-rl train task=cartpole learner=flashsac flashsac.wa") == ["flashsac.warm_up="]


def test_an_answer_imports_nothing_heavy(known):
    code = (
        "import sys; from robot_rl.cli.main import main\n"
        "for line in sys.argv[1:]: main(['completion', 'suggest', line])\n"
        f"sys.exit(' '.join({HEAVY} & set(sys.modules)) or 0)"
    )
    lines = [
        "",
        "train task=",
        "train task=cartpole rewards.",
        "train learner=flashsac ",
        "train launcher=",
        "eval run=",
    ]
    lines += [*(f"{command} " for command in COMMANDS), "play policy=", "check robot=", "runs prune "]
    words = [sys.executable, "-c", code, *(f"robot-rl {line}" for line in lines)]
    done = subprocess.run(words, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")


def test_a_shell_that_is_not_known_is_one_line(run):
    assert run("completion", "tcsh")[::2] == (
        2,
        "robot-rl: completion tcsh: must be one of bash, zsh, fish\n",
    )
    assert run("completion")[0] == 2


@pytest.mark.parametrize("shell", SHELLS)
def test_a_shell_reads_its_script(run, tmp_path, shell):
    if shutil.which(shell) is None:
        pytest.skip(f"{shell} is not installed")
    script = tmp_path / f"script.{shell}"
    script.write_text(run("completion", shell)[1])
    subprocess.run([shell, "-n", script], check=True)


def test_bash_completes(known, run, tmp_path):
    """In a terminal, words with = and : included, at which Bash begins new words."""
    (tmp_path / "script.bash").write_text(run("completion", "bash")[1])
    program = tmp_path / "bin" / "robot-rl"
    program.parent.mkdir()
    answer = f'exec "{sys.executable}" -m robot_rl.cli.main "$@"'
    program.write_text(f'#!/bin/sh\nif [ "$1" = completion ]; then {answer}; fi\necho "<$*>"\n')
    program.chmod(0o755)
    (tmp_path / "my.yaml").touch()
    typed = {
        "robot-rl tra\ttask=cartpo\tseed=2\n": "<train task=cartpole seed=2>",
        "robot-rl train task=cartpole rewards.up\tw\t3\n": "<train task=cartpole rewards.upright.weight=3>",
        "robot-rl train task=gym:a:b graph=of\n": "<train task=gym:a:b graph=of>",
        "robot-rl train task=gym:a:b graph=of\t\n": "<train task=gym:a:b graph=off>",
        "robot-rl train --config my\t\n": "<train --config my.yaml>",
    }
    pid, terminal = pty.fork()
    if pid == 0:
        os.environ |= {"PATH": f"{program.parent}:{os.environ['PATH']}", "TERM": "dumb", "PS1": "$ "}
        os.execvp("bash", ["bash", "--norc", "--noprofile", "-i"])
    try:
        os.write(terminal, b"source script.bash; echo rea''dy\n")
        read_until(terminal, "ready")
        for keys, wanted in typed.items():
            os.write(terminal, keys.encode())
            read_until(terminal, wanted)
    finally:
        os.close(terminal)
        os.waitpid(pid, 0)


def read_until(terminal, wanted):
    """Read a terminal until a text came; fail with what came at the end of a command, if that is another."""
    text = ""
    while wanted not in text:
        text += os.read(terminal, 4096).decode(errors="replace")
        assert wanted in text or "<" not in text or ">" not in text.partition("<")[2], text
