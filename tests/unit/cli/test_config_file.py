"""`robot-rl train --config FILE`: the names and values of the command line, which wins."""

import pytest
import yaml

from robot_rl.cli.config_file import take_config
from robot_rl.errors import NotRetryableError, UserError

MINE = """\
task: cartpole
seed: 2
rewards:
  upright: {weight: 2e0, joint: 0.5}
  ~energy:
ppo.learning_rate: 1e-3
ppo: {gamma: 0.9}
actor.hidden: [32, 16]
graph: off
kernels: 'it''s \\ here'
init_from:
"""
WORDS = [
    *("task=cartpole", "seed=2", "rewards.upright.weight=2e0", "rewards.upright.joint=0.5", "~rewards.energy"),
    *("ppo.learning_rate=1e-3", "ppo.gamma=0.9", "actor.hidden=[32,16]", "graph=off"),
    *(r"kernels='it\'s \ here'", "init_from=null"),
]


@pytest.fixture
def shown(run, in_tmp):
    """shown(text of the file, *words): what --cfg job prints of the settings."""

    def show(text, *words):
        (in_tmp / "my.yaml").write_text(text)
        code, out, err = run("train", "--config", "my.yaml", *words, "--cfg", "job")
        assert (code, err) == (0, "")
        return yaml.safe_load(out)

    return show


@pytest.mark.parametrize("flag", [("--config", "my.yaml"), ("--config=my.yaml",), ("config=my.yaml",)])
def test_a_file_becomes_words(in_tmp, flag):
    (in_tmp / "my.yaml").write_text(MINE)
    words, _ = take_config(["-m", *flag, "num_envs=4"])
    assert words == [*WORDS, "-m", "num_envs=4"]


def test_its_values_are_those_of_the_command_line(shown):
    tree = shown(MINE)
    assert (tree["seed"], tree["graph"], tree["kernels"], tree["init_from"]) == (2, "off", r"it's \ here", None)
    assert (tree["ppo"]["learning_rate"], tree["ppo"]["gamma"], tree["actor"]["hidden"]) == (1e-3, 0.9, [32, 16])
    assert tree["rewards"]["upright"]["weight"] == 2.0
    assert "energy" not in tree["rewards"]


def test_words_of_the_command_line_win(shown):
    tree = shown(MINE, "seed=7", "rewards={upright:{weight:3}}", "ppo.gamma=0.8")
    assert (tree["seed"], tree["ppo"]["gamma"], tree["ppo"]["learning_rate"]) == (7, 0.8, 1e-3)
    assert (tree["rewards"]["upright"]["weight"], tree["rewards"]["upright"]["joint"]) == (3, 0.5)
    assert "upright" not in shown(MINE, "~rewards.upright")["rewards"]


def test_what_cfg_job_prints_is_such_a_file(run, shown):
    _, out, _ = run("train", "task=cartpole", "--cfg", "job")
    assert shown(out) == yaml.safe_load(out)


def test_it_may_have_a_sweep(run, in_tmp):
    (in_tmp / "my.yaml").write_text("task: cartpole\nseed: 1,2\nmax_iterations: 1\nnum_envs: 2\nnum_steps: 2\n")
    assert run("train", "--config", "my.yaml")[2].startswith("robot-rl: my.yaml, line 2: 'seed=1,2': several values")
    assert run("train", "-m", "--config", "my.yaml", "num_threads=1")[0] == 0
    assert sorted(path.name.split("-")[2] for path in in_tmp.glob("runs/cartpole/*")) == ["1", "2"]


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("ppo:\n  lerning_rate: 1\n", "my.yaml, line 2: unknown key 'ppo.lerning_rate': did you mean 'ppo.learning_ra"),
        ("rewards: {uprigth: {weight: 1}}", "my.yaml, line 1: unknown key 'rewards.uprigth.weight': did you mean"),
        ("seed: [1, 2]", "my.yaml, line 1: seed=[1, 2]: must be a whole number; several values are a sweep: write a,b"),
        ("seed: 1\nseed: 2", "my.yaml: is not YAML, the key 'seed' is there twice, again in line 2"),
        ("ppo: {gamma: 1}\nppo.gamma: 1", "my.yaml, line 2: ppo.gamma is given twice, first in line 1"),
        ("~rewards.energy: 1", "my.yaml, line 1: ~rewards.energy has a value; write ~rewards.energy: alone"),
        ("config: other.yaml", "my.yaml, line 1: unknown key 'config'"),
        ("launcher: slrm", "my.yaml, line 1: launcher=slrm: must be one of"),
        ("launcher: 'slrm'", "my.yaml, line 1: launcher=slrm: must be one of"),
        ("root: 'null'\nseed: x", "my.yaml, line 2: seed=x: must be a whole number"),
        ("seed: '1'", "my.yaml, line 1: seed='1': must be a whole number"),
        ("a=b: 1", "my.yaml, line 1: 'a=b' is not a name of a setting"),
        ("- seed", "my.yaml: must have settings, such as task: cartpole"),
        ("seed: [", "my.yaml: is not YAML, "),
    ],
)
def test_what_is_wrong_names_the_file_and_the_setting(run, in_tmp, text, line):
    (in_tmp / "my.yaml").write_text(text)
    code, _, err = run("train", "--config", "my.yaml", "task=cartpole")
    assert code == 2
    assert err.startswith(f"robot-rl: {line}")


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (["--config", "no.yaml"], "--config no.yaml: cannot be read (no such file"),
        (["--config"], "--config: name a file"),
        (["--config=a", "config=b"], "--config a and --config b: one file is read"),
        (["--config", "."], "is a directory or device, must be a plain file"),
    ],
)
def test_a_file_that_cannot_be_read(run, in_tmp, words, line):
    code, _, err = run("train", "task=cartpole", *words)
    assert (code, line in err) == (2, True)


def test_an_error_keeps_its_kind(in_tmp):
    (in_tmp / "my.yaml").write_text("seed: 1")
    _, file = take_config(["--config", "my.yaml"])
    with pytest.raises(NotRetryableError, match="^seed=1: gone$"), file.named():
        raise NotRetryableError("seed=1: gone")
    with pytest.raises(UserError, match="^num_seed=1: odd$"), file.named():
        raise UserError("num_seed=1: odd")
