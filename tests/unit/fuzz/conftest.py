"""Shared by the fuzz tests: number of examples, malicious values, damaged trees, and a time limit.

Every run tries the same inputs. `make fuzz` tries many more, other ones each time: FUZZ is their number per test.
"""

import copy
import math
import os
import signal

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st

QUICK, HANGS_S = 24, 120
SLOW = [HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.large_base_example]
settings.register_profile(
    "quick", max_examples=QUICK, derandomize=True, database=None, deadline=None, suppress_health_check=SLOW
)
settings.register_profile(
    "long",
    max_examples=int(os.environ.get("FUZZ") or 1000),
    database=None,
    deadline=None,
    print_blob=True,
    suppress_health_check=SLOW,
)
settings.load_profile("long" if os.environ.get("FUZZ") else "quick")


def deep(depth, kind=list):
    """Lists or dicts, one in the other."""
    value = kind()
    for _ in range(depth):
        value = [value] if kind is list else {"a": value}
    return value


NUMBERS = (0, -1, 2, 7, 2**31, 2**63, -(2**64), 10**309, 10**4000, 1e-320, 1e308, -1e308, 0.5, -0.0)
OTHERS = (math.nan, math.inf, -math.inf, None, True, False, [], {}, [[]], {"": None}, [None], [1, "a"], {"a": {"b": 1}})
TEXTS = (
    "",
    " ",
    "\n",
    "a\nb",
    "\0",
    "\x1b[2J",
    "\ud800",
    "../../etc/passwd",
    "/etc",
    "none",
    "1e9999",
    "${a}",
    "x" * 5000,
)
HURTS = st.one_of(
    st.sampled_from((*NUMBERS, *OTHERS, *TEXTS, deep(30), deep(30, dict))).map(copy.deepcopy),
    st.integers(),
    st.floats(),
    st.text(max_size=12),
    st.lists(st.one_of(st.integers(-3, 99), st.floats(), st.text(max_size=3)), max_size=5),
)


def places(tree, path=()):
    """The paths of everything in a tree of dicts and lists."""
    items = tree.items() if isinstance(tree, dict) else enumerate(tree) if isinstance(tree, list) else ()
    for key, value in items:
        yield (*path, key)
        yield from places(value, (*path, key))


def damage(draw, tree):
    """Change one place of a tree: another value, gone, something more, or what stands elsewhere."""
    path = draw(st.sampled_from(list(places(tree))))
    parent = tree
    for key in path[:-1]:
        parent = parent[key]
    what = draw(st.sampled_from(("replace", "replace", "replace", "remove", "add", "swap")))
    if what == "remove":
        del parent[path[-1]]
    elif what == "add" and isinstance(parent, dict):
        parent[draw(st.one_of(st.text(max_size=8), st.sampled_from(("a\nb", "\ud800", "x" * 5000))))] = draw(HURTS)
    elif what == "swap":
        other = tree
        for key in draw(st.sampled_from(list(places(tree)))):
            other = other[key]
        parent[path[-1]] = copy.deepcopy(other)
    else:
        parent[path[-1]] = draw(HURTS)


@pytest.fixture(scope="session")
def hurts():
    """Values that loaders do not expect, as a strategy."""
    return HURTS


@pytest.fixture(scope="session")
def damaged():
    """A function that takes `data.draw` and a tree, and gives a copy of the tree with up to three changes."""

    def change(draw, tree):
        result = copy.deepcopy(tree)
        for _ in range(draw(st.integers(1, 3))):
            if result:
                damage(draw, result)
        return result

    return change


@pytest.fixture(scope="session")
def broken():
    """A function that takes `data.draw` and bytes, and gives them cut, with others inside, or with bits turned."""

    def change(draw, content):
        result = bytearray(content)
        for _ in range(draw(st.integers(1, 3))):
            at = draw(st.integers(0, len(result)))
            more = draw(
                st.one_of(st.binary(max_size=16), st.sampled_from((b"\0" * 64, b"\xff" * 8, b"[" * 300, b"\n")))
            )
            what = draw(st.sampled_from(("cut", "put", "insert", "remove", "repeat")))
            if what == "cut":
                del result[at:]
            elif what == "put":
                result[at : at + len(more)] = more
            elif what == "insert":
                result[at:at] = more
            elif what == "remove":
                del result[at : at + draw(st.integers(1, 64))]
            else:
                result[at:at] = result[at : at + draw(st.integers(1, 400))]
        return bytes(result)

    return change


@pytest.fixture(scope="session")
def refuses():
    """A function that calls another, and gives its result or, where the error is of a kind, that it was refused."""

    def call(kind, function, *arguments):
        try:
            return function(*arguments), None
        except kind as error:
            line = str(error)
            assert line, "a refusal has a message"
            assert "\n" not in line, f"one line: {line[:500]!r}"
            assert len(line) < 2000, f"a line, no page: {line[:500]!r}"
            return None, line

    return call


@pytest.fixture(params=["pipe", "folder", "device", "large"])
def no_plain_file(request, tmp_path):
    """The path of what is no file that can be read: a pipe, a folder, a device without end, 1 TiB of nothing."""
    path = tmp_path / "odd.file"
    if request.param == "pipe":
        os.mkfifo(path)
    elif request.param == "folder":
        path.mkdir()
    elif request.param == "device":
        path.symlink_to("/dev/zero")
    else:
        with path.open("wb") as stream:
            stream.truncate(2**40)
    return path


@pytest.fixture(autouse=True)
def _no_hang():
    """A test that waits for ever, such as on a pipe that nobody writes to, fails."""

    def stop(*_):
        raise TimeoutError(f"no answer in {HANGS_S} s")

    before = signal.signal(signal.SIGALRM, stop)
    signal.alarm(HANGS_S * (1 if not os.environ.get("FUZZ") else 60))
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)
