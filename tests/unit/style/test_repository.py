"""What the repository promises in addition to its code: versions, packages, the README's commands."""

import re
import subprocess
import sys
import tomllib
from pathlib import Path

import yaml

ROOT = Path(__file__).parents[3]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())


def canonical(name):
    return re.sub(r"[-_.]+", "-", name).lower()


def requirements():
    project = PROJECT["project"]
    lists = [project["dependencies"], *project["optional-dependencies"].values()]
    names = {canonical(re.match(r"[\w.-]+", line)[0]) for group in lists for line in group}
    return names - {"robot-rl"}


def test_every_dependency_is_pinned_exactly():
    lines = [line for line in (ROOT / "constraints.txt").read_text().splitlines() if not line.startswith("#")]
    assert all(re.fullmatch(r"[\w.-]+==[\w.]+", line) for line in lines)
    assert requirements() <= {canonical(line.partition("==")[0]) for line in lines}


def test_the_wheel_holds_every_package():
    hatch = PROJECT["tool"]["hatch"]["build"]
    packages = hatch["targets"]["wheel"]["packages"]
    assert {str(Path(path).parent) for path in packages} == set(hatch["dev-mode-dirs"])
    for path in packages:
        assert (ROOT / path / "__init__.py").is_file()


def test_python_is_the_same_everywhere():
    assert PROJECT["project"]["requires-python"] == ">=3.11"
    assert PROJECT["tool"]["ruff"]["target-version"] == "py311"
    assert PROJECT["tool"]["pyright"]["pythonVersion"] == "3.11"


def test_pre_commit_runs_what_make_check_runs():
    hooks = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text())["repos"][0]["hooks"]
    makefile = (ROOT / "Makefile").read_text()
    tools = {hook["entry"].split()[0].rpartition("/")[2] for hook in hooks}
    assert tools == {"ruff", "pyright", "lint-imports"}
    for tool in tools:
        assert f"$(BIN)/{tool}" in makefile


def test_make_help_lists_every_target():
    makefile = (ROOT / "Makefile").read_text()
    phony = re.search(r"^\.PHONY: (.*)$", makefile, re.MULTILINE)
    assert phony
    described = set(re.findall(r"^([a-z-]+):.*## ", makefile, re.MULTILINE))
    assert described == set(phony[1].split())


def test_the_policy_contract_imports_only_the_standard_library():
    code = (
        "import sys; sys.path.insert(0, sys.argv[1]); before = set(sys.modules); import robot_rl_deploy.contract; "
        "new = {name.partition('.')[0] for name in set(sys.modules) - before}; "
        "print(' '.join(sorted(new - sys.stdlib_module_names)))"
    )
    words = [sys.executable, "-I", "-c", code, str(ROOT / "deploy_jetson")]
    done = subprocess.run(words, capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["robot_rl_deploy"]


def test_no_large_file_is_committed():
    names = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=False).stdout
    sizes = {name: (ROOT / name).stat().st_size for name in names.split("\0") if name and (ROOT / name).is_file()}
    assert {name: size for name, size in sizes.items() if size > 1_000_000} == {}
