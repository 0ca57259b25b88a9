"""The Dockerfile, which cannot be built here: its instructions, what it copies, what it is built on."""

import json
import re
import shlex
import subprocess
import tomllib
from pathlib import Path

import pytest

from robot_rl.cluster.manifests import pod
from robot_rl.cluster.manifests.job import ClusterJob

ROOT = Path(__file__).parents[4]
INSTRUCTIONS = {"ARG", "CMD", "COPY", "ENTRYPOINT", "ENV", "FROM", "LABEL", "RUN", "USER", "WORKDIR"}
PINNED = re.compile(r"[a-z0-9./-]+:\d+\.\d+\.\d+[a-z0-9.-]*(@sha256:[0-9a-f]{64})?")


def instructions(text):
    """(instruction, the rest) of every instruction of a Dockerfile, with its lines joined."""
    lines = [line for line in text.splitlines() if line.strip() and not line.lstrip().startswith("#")]
    joined = re.sub(r"\\\n\s*", " ", "\n".join(lines))
    return [tuple(line.split(maxsplit=1)) for line in joined.splitlines()]


FOUND = instructions((ROOT / "Dockerfile").read_text())


def of(name):
    return [rest for instruction, rest in FOUND if instruction == name]


def copied():
    """Paths of this repository that are copied into the image."""
    for rest in of("COPY"):
        words = shlex.split(rest)
        if not words[0].startswith("--from="):
            yield from words[:-1]


def pattern(text):
    """A pattern of .dockerignore as a regular expression of the path or a folder above it."""
    parts = re.split(r"(\*\*/|\*|\?|\[[^]]*\])", text.strip("/"))
    known = {"**/": r"(?:.*/)?", "*": r"[^/]*", "?": r"[^/]"}
    body = "".join(known.get(part, part if part.startswith("[") else re.escape(part)) for part in parts)
    return re.compile(f"{body}(?:/.*)?")


def is_ignored(path):
    """Whether .dockerignore keeps a path out: its last pattern that fits decides."""
    ignored = False
    for line in (ROOT / ".dockerignore").read_text().splitlines():
        if line and not line.startswith("#") and pattern(line.removeprefix("!")).fullmatch(path):
            ignored = not line.startswith("!")
    return ignored


def test_it_has_known_instructions_only():
    assert {instruction for instruction, _ in FOUND} <= INSTRUCTIONS
    assert FOUND[0][0] == "FROM"


def test_what_it_is_built_on_is_pinned():
    for rest in of("FROM"):
        assert PINNED.fullmatch(rest.split()[0]), rest
    assert "latest" not in (ROOT / "Dockerfile").read_text()
    for rest in of("RUN"):
        if "pip install" in rest:
            assert "-c constraints.txt" in rest


def test_stages_that_are_copied_from_exist():
    stages = {rest.split()[2] for rest in of("FROM") if " AS " in rest}
    wanted = set(re.findall(r"--from=(\S+)", " ".join(of("COPY"))))
    assert wanted == {"build", "robot-build"}
    assert stages == wanted | {"robot"}


def test_everything_that_is_copied_is_here_and_sent_to_the_builder():
    paths = list(copied())
    assert {"constraints.txt", "robot_rl", "deploy_jetson"} <= set(paths)
    for path in paths:
        assert (ROOT / path).exists()
        assert not is_ignored(path)
    assert not is_ignored("robot_rl/cluster/manifests/schemas.yaml")


def test_everything_that_the_wheel_needs_is_copied():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    wheel = project["tool"]["hatch"]["build"]["targets"]["wheel"]
    needed = [*wheel["packages"], *wheel["force-include"], project["project"]["readme"], "pyproject.toml"]
    paths = set(copied())
    for path in [*needed, *project["project"]["license-files"]]:
        assert paths & {path, *map(str, Path(path).parents)}, path


@pytest.mark.parametrize(
    "path",
    [
        *(".git/config", ".venv/bin/python", ".venv-isaac/lib", "runs/cartpole/a/run.yaml", "robot.key", "outputs/x"),
        *(
            "robot_rl/__pycache__/a.cpython-311.pyc",
            "deploy_jetson/runtime/build/a.o",
            "tests/conftest.py",
            "docs/a.md",
        ),
        *("envs/runs/a", "tasks/.git", "sim_assets/mine.key", ".env"),
    ],
)
def test_runs_environments_history_and_keys_stay_here(path):
    assert is_ignored(path)


def test_its_shell_lines_are_shell():
    for rest in of("RUN"):
        subprocess.run(["bash", "-n", "-c", rest], check=True)


def test_it_runs_as_the_user_of_the_manifests_and_passes_signals_on():
    assert of("USER")[-1] == f"{pod.USER_ID}:{pod.USER_ID}"
    assert json.loads(of("ENTRYPOINT")[-1]) == ["tini", "--"]
    assert json.loads(of("CMD")[-1]) == ["robot-rl", "--help"]
    packages = [rest for rest in of("RUN") if "apt-get" in rest][-1]
    for name in ("tini", "libegl1", "libgl1-mesa-dri", "wget"):
        assert f" {name} " in packages
    assert "--no-install-recommends" in packages


def test_the_image_of_the_manifests_is_of_this_version():
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    assert ClusterJob(run_id="a", task="b").image == f"robot-rl:{version}"
