"""Any run.yaml and any setting: refused in one line, or settings that are written and read again as they are."""

import copy
import os
import re

import pytest
import yaml
from hypothesis import example, given
from hypothesis import settings as limits
from hypothesis import strategies as st

from robot_rl.cli.compose import launch
from robot_rl.errors import UserError
from robot_rl.files import read_yaml
from robot_rl.learn.algorithms.ppo.config import PPOLearnerCfg
from robot_rl.runs import settings
from robot_rl.runs.run_dir import RunDir
from robot_rl.settings import apply_overrides, from_dict, to_dict
from robot_rl.settings import tree as trees
from robot_rl.settings import words as grammar

RUN = "20260101-100000-1-aaaa"
TASKS = ("cartpole", "go2_rough", "gym:CartPole-v1")
FEW = limits(max_examples=max(1, limits().max_examples // 3))
TREES = {name: settings.default_tree(name, "cpu") for name in TASKS}
YAML = """!!timestamp x|2024-99-45|!!int ''|!!bool x|!!float x|0b_|0x_|<<: 3|&a [*a]|=|1_0|"\\UFFFFFFFF"|"\\ud800"|.nan
-.inf|!!python/object:os.system x|!!set {a}|!!omap [a: 1]|!!binary x|{[1]: 2}|? [a]|2024-01-01|[1, [2]]|{a: 1}"""
WORDS = (
    *re.split(r"[|\n]", YAML),
    "9" * 400,
    "9" * 5000,
    "0x" + "f" * 5000,
    "[" * 300,
    "{a: " * 300,
    "\0",
    "%YAML 9.9\n---\n1",
)
BOMB = "a0: &a0 {x: 1}\n" + "".join(f"a{i + 1}: &a{i + 1} {{x: *a{i}, y: *a{i}}}\n" for i in range(40))
MERGED = "a0: &a0 {x: 1}\n" + "".join(f"a{i + 1}: &a{i + 1} {{<<: [*a{i}, *a{i}]}}\n" for i in range(40))


@pytest.fixture(scope="module")
def run_dir(tmp_path_factory):
    """A function that writes a run.yaml, and gives its run."""
    path = tmp_path_factory.mktemp("fuzz") / "runs" / "cartpole" / RUN
    path.mkdir(parents=True)

    def write(content):
        (path / "run.yaml").write_bytes(content)
        return RunDir(path)

    return write


def same(cfg):
    """Settings that were accepted are written as YAML and mean the same when they are read."""
    again = yaml.safe_load(yaml.safe_dump(cfg.tree))
    found = settings.resolve(again)
    assert repr(found.learner) == repr(cfg.learner)
    assert repr(_numbers(found.task)) == repr(_numbers(cfg.task))


def _numbers(task):
    return task.settings if task.name.startswith("gym:") else trees.task_tree(task)


def test_bombs_are_refused():
    for text in (BOMB, MERGED, "&a [*a, *a]", "[" * 100 + "]" * 100):
        with pytest.raises(ValueError, match="more than|merged|nested"):
            read_yaml(text)
    assert read_yaml("a: &a [1, 2]\nb: *a") == {"a": [1, 2], "b": [1, 2]}
    assert read_yaml("") is None


@given(content=st.one_of(st.binary(), st.text().map(str.encode), st.sampled_from(WORDS).map(str.encode)))
@example(content=f"config:\n  {BOMB}".replace("\n", "\n  ").encode())
@example(content=f"config:\n  {MERGED}".replace("\n", "\n  ").encode())
def test_any_run_yaml(content, run_dir, refuses):
    for data in (content, b"config: " + content, b"config: {task: " + content + b"}"):
        found, _ = refuses(UserError, settings.load, run_dir(data))
        assert found is None


@pytest.mark.parametrize("name", TASKS)
@FEW
@given(data=st.data())
def test_a_run_yaml_with_other_values(name, data, run_dir, damaged, refuses):
    record = {"config": TREES[name], "resumed": [], "versions": {"torch": "2"}}
    try:
        text = yaml.safe_dump(damaged(data.draw, record))
    except ValueError:  # a number of too many digits
        return
    found, _ = refuses(UserError, settings.load, run_dir(text.encode(errors="surrogatepass")))
    if found is not None:
        same(found)


@given(data=st.data())
def test_a_run_yaml_with_other_bytes(data, run_dir, broken, refuses):
    original = yaml.safe_dump({"config": TREES["cartpole"]}).encode()
    found, _ = refuses(UserError, settings.load, run_dir(broken(data.draw, original)))
    if found is not None:
        same(found)


@pytest.mark.parametrize("what", ["link", "pipe", "folder", "device", "large", "loop"])
def test_no_plain_run_yaml(what, refuses, tmp_path):
    run = RunDir(tmp_path / "runs" / "cartpole" / RUN)
    run.path.mkdir(parents=True)
    other = tmp_path / "other"
    other.write_text("config: {}")
    if what == "pipe":
        os.mkfifo(run.config_file)
    elif what == "folder":
        run.config_file.mkdir()
    elif what == "large":
        with run.config_file.open("wb") as stream:
            stream.truncate(2**40)
    elif what == "loop":
        run.config_file.symlink_to(run.config_file)
    else:
        run.config_file.symlink_to(other if what == "link" else "/dev/zero")
    found, line = refuses(UserError, settings.load, run)
    assert found is None
    assert "run.yaml" in line


KEYS = {name: [key for key in trees.dotted_keys(tree) if key != "task"] for name, tree in TREES.items()}


@pytest.mark.parametrize("name", TASKS)
@given(data=st.data())
def test_any_override(name, data, hurts, refuses):
    """As the command line gives them: a key, and a text that is read as Hydra reads it."""
    value = st.one_of(st.text(max_size=20), st.sampled_from(WORDS), hurts.map(lambda value: str(value)[:4000]))
    given_words = data.draw(st.lists(st.tuples(st.one_of(st.sampled_from(KEYS[name]), st.text(max_size=9)), value)))
    before = copy.deepcopy(TREES[name])

    def load():
        changes = grammar.read_changes([f"{key}={text}" for key, text in given_words])
        return settings.resolve(settings.change(TREES[name], changes))

    found, _ = refuses(UserError, load)
    assert repr(TREES[name]) == repr(before), "an override changed what it was given"
    if found is not None:
        same(found)


@given(data=st.data())
def test_any_learner_setting(data, hurts, refuses):
    base = PPOLearnerCfg()
    known = list(trees.dotted_keys(to_dict(base)))
    changes = data.draw(st.dictionaries(st.one_of(st.sampled_from(known), st.text(max_size=9)), hurts, min_size=1))
    found, _ = refuses(UserError, apply_overrides, base, changes)
    assert base == PPOLearnerCfg(), "an override changed what it was given"
    if found is not None:
        assert repr(from_dict(PPOLearnerCfg, to_dict(found))) == repr(found)


@given(words=st.lists(st.text(max_size=12)))
def test_any_words_of_an_ordinary_command(words, refuses):
    from robot_rl.cli import options
    from robot_rl.cli.eval import Options

    refuses(UserError, options.read, Options, words)
    refuses(UserError, options.read_all, Options, [f"num_envs={word}" for word in words[:1]])


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("task=cartpole", "seed=" + "9" * 5000), "write a number, a word"),
        (("task=cartpole", "~seed"), "~seed: can be changed but not omitted"),
        (("task=cartpole", "~metrics"), "~metrics: can be changed but not omitted"),
        (("task=cartpole", "metrics=3"), "metrics=3: is a group"),
        (("-m", "task=cartpole", "seed=glob(*)"), "is not a valid sweep"),
        (("-m", "task=cartpole", "seed=range(1,1000000000)"), "more than 10000 values"),
        (("task=gym:..a:b-v1",), "write gym:<id>"),
        (("task=gym:CartPole-v1", "env=3"), "env=3: is a group"),
    ],
)
def test_what_training_refuses(words, message, refuses):
    found, line = refuses(UserError, launch, words, settings.resolve)
    assert found is None
    assert message in line
