"""key=value arguments."""

from dataclasses import dataclass

import pytest

from robot_rl.cli.options import describe, option, parse_value, read, read_all
from robot_rl.errors import UserError


@dataclass(kw_only=True, slots=True)
class Options:
    run: str = option("latest", "the run")
    episodes: int = option(100, "how many")
    seconds: float = option(10.0, "how long")
    quiet: bool = option(False, "print less")


def test_values_get_the_type_of_their_field():
    options = read_all(Options, ["episodes=3", "seconds=2", "quiet=true", "run=a=b"])
    assert options == Options(run="a=b", episodes=3, seconds=2.0, quiet=True)
    assert isinstance(options.seconds, float)


def test_dotted_keys_are_handed_on():
    options, dotted = read(Options, ["sim.timestep=1e-3", "actor.hidden=[8, 8]", "run=x"])
    assert options.run == "x"
    assert dotted == {"sim.timestep": 0.001, "actor.hidden": [8, 8]}


@pytest.mark.parametrize(
    ("argument", "message"),
    [
        ("episode=3", "did you mean 'episodes'?"),
        ("episodes=3.5", "episodes=3.5: must be a whole number"),
        ("seconds=long", "seconds=long: must be a number"),
        ("quiet=maybe", "quiet=maybe: must be true or false"),
        ("episodes", "'episodes': write options as key=value"),
        ("--quiet", "'--quiet': write options as key=value"),
        ("sim.timestep=1", "unknown key 'sim.timestep'"),
    ],
)
def test_a_mistake_is_named(argument, message):
    with pytest.raises(UserError) as error:
        read_all(Options, [argument])
    assert message in str(error.value)


def test_a_key_is_given_once():
    with pytest.raises(UserError, match="episodes=1 and episodes=2: episodes is given twice"):
        read_all(Options, ["episodes=1", "episodes=2"])


@pytest.mark.parametrize(
    ("text", "value"),
    [("1e-3", 0.001), ("-2", -2), ("true", True), ("null", None), ("[1, 2]", [1, 2]), ("word", "word"), ("", "")],
)
def test_plain_values(text, value):
    assert parse_value(text, "x") == value


def test_a_value_that_is_no_yaml():
    with pytest.raises(UserError, match="cannot be read"):
        parse_value("[1,", "x")


def test_the_help_lists_every_option():
    lines = describe(Options).splitlines()
    assert [line.split()[0] for line in lines] == ["run=latest", "episodes=100", "seconds=10.0", "quiet=false"]
