"""The style rules that no linter checks, applied to every module of the five packages and the examples."""

import ast
import functools
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
PACKAGES = (
    "robot_rl",
    "envs/robot_rl_envs",
    "tasks/robot_rl_tasks",
    "sim_assets/robot_rl_assets",
    "deploy_jetson/robot_rl_deploy",
    "examples",
)
MODULES = sorted(path for package in PACKAGES for path in (ROOT / package).rglob("*.py"))
parse = functools.cache(ast.parse)  # Each rule looks at every module.
MAX_FUNCTION, MAX_PARAMETERS, MAX_ROBOT = 60, 8, 150

# A term's decorator makes the Warp function by itself.
TERM_DECORATOR = re.compile(r"^(wp\.func|reward|metric|termination|observation|command|event|curriculum)\b")

# Imported by the functions that need them, or at the top of the files that are about them.
HEAVY = {"mujoco", "mujoco_warp", "isaaclab", "wandb", "ray", "viser", "av", "onnxruntime", "onnx", "matplotlib"}
ABOUT = {
    "mujoco": (
        "envs/robot_rl_envs/entity/entity.py",
        "envs/robot_rl_envs/entity/objects.py",
        "envs/robot_rl_envs/entity/scene.py",
        "envs/robot_rl_envs/entity/reference_motions.py",
        "envs/robot_rl_envs/motions/kinematics.py",
        "envs/robot_rl_envs/entity/robot_checks.py",
        "envs/robot_rl_envs/entity/limbs.py",
        "envs/robot_rl_envs/entity/trials.py",
        "envs/robot_rl_envs/engines/mujoco.py",
        "envs/robot_rl_envs/engines/mujoco_warnings.py",
        "envs/robot_rl_envs/team/scene.py",
        "envs/robot_rl_envs/engines/mujoco_warp.py",
        "envs/robot_rl_envs/cameras/views.py",
    ),
    "isaaclab": ("envs/robot_rl_envs/adapters/isaac_env.py",),
    "mujoco_warp": ("envs/robot_rl_envs/engines/mujoco_warp.py", "envs/robot_rl_envs/cameras/views.py"),
}
# Formats that run code when they are read.
UNSAFE_MODULES = {"pickle", "cPickle", "dill", "cloudpickle", "shelve", "marshal", "joblib"}


def functions(tree):
    return [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]


def top_level(tree):
    """Statements that run at import; those of `if TYPE_CHECKING` do not."""
    waiting = list(tree.body)
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test):
            waiting += node.orelse
            continue
        yield node
        for part in ("body", "orelse", "finalbody", "handlers"):
            if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                waiting += getattr(node, part, [])


def imported(node):
    """Top names of the packages that an import statement imports."""
    if isinstance(node, ast.Import):
        return {alias.name.partition(".")[0] for alias in node.names}
    if isinstance(node, ast.ImportFrom) and node.level == 0:
        return {(node.module or "").partition(".")[0]}
    return set()


def over_budget(text, name):
    """What breaks a budget in a module, one line each."""
    found = []
    for node in functions(parse(text)):
        length = (node.end_lineno or node.lineno) - node.lineno + 1
        arguments = [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]
        count = len([argument for argument in arguments if argument.arg not in ("self", "cls")])
        if length > MAX_FUNCTION:
            found.append(f"{name}:{node.lineno} {node.name}: {length} lines, at most {MAX_FUNCTION}")
        if count > MAX_PARAMETERS and not is_term(node):
            found.append(f"{name}:{node.lineno} {node.name}: {count} parameters, at most {MAX_PARAMETERS}")
    return found


def is_term(node):
    """Whether a function is a Warp function: its parameters beyond the fixed ones are a task's numbers."""
    return any(TERM_DECORATOR.search(ast.unparse(decorator)) for decorator in node.decorator_list)


def loads_code(text):
    """What in a module could run code from a file it reads."""
    found = []
    for node in ast.walk(parse(text)):
        found += [f"{node.lineno}: import {name}" for name in imported(node) & UNSAFE_MODULES]  # type: ignore[attr-defined]
        if isinstance(node, ast.Call):
            called = ast.unparse(node.func)
            arguments = {word.arg: ast.unparse(word.value) for word in node.keywords}
            if called == "torch.load" and arguments.get("weights_only") != "True":
                found.append(f"{node.lineno}: torch.load without weights_only=True")
            if called in ("np.load", "numpy.load") and arguments.get("allow_pickle", "False") != "False":
                found.append(f"{node.lineno}: {called} with allow_pickle")
            if called in ("yaml.load", "yaml.unsafe_load", "yaml.full_load", "eval"):
                found.append(f"{node.lineno}: {called}")
    return found


def heavy_at_import(text, name):
    """Heavy packages that a module imports when it is imported."""
    found = set()
    for node in top_level(parse(text)):
        found |= {package for package in imported(node) & HEAVY if name not in ABOUT.get(package, ())}
    return sorted(found)


@pytest.fixture(scope="module")
def modules():
    """(path below the repository, text) of every module."""
    return [(str(path.relative_to(ROOT)), path.read_text()) for path in MODULES]


def test_functions_keep_their_budgets(modules):
    assert [line for name, text in modules for line in over_budget(text, name)] == []


def test_nothing_that_is_read_runs_code(modules):
    assert [f"{name}:{line}" for name, text in modules for line in loads_code(text)] == []


def test_heavy_packages_are_imported_when_they_are_needed(modules):
    assert {name: found for name, text in modules if (found := heavy_at_import(text, name))} == {}


def test_the_first_line_of_a_module_describes_it(modules):
    assert [name for name, text in modules if not ast.get_docstring(parse(text))] == []


def test_a_robot_is_one_short_file():
    lines = {path: len(path.read_text().splitlines()) for path in (ROOT / PACKAGES[3]).glob("*/robot.py")}
    assert {path: count for path, count in lines.items() if count > MAX_ROBOT} == {}


def test_all_packages_are_looked_at():
    for package in PACKAGES:
        assert any(path.is_relative_to(ROOT / package) for path in MODULES)


def test_the_rules_see_what_breaks_them():
    long = "def f(a, b, c, d, e, *, f, g, h, i):\n" + "    x = 1\n" * 60
    assert [line.split(":", 1)[1] for line in over_budget(long, "m")] == [
        "1 f: 61 lines, at most 60",
        "1 f: 9 parameters, at most 8",
    ]
    assert over_budget("@wp.func\ndef f(s, i, rng, a, b, c, d, e, g):\n    pass\n", "m") == []
    assert heavy_at_import("try:\n    import mujoco.viewer\nexcept ImportError:\n    from av import open\n", "m") == [
        "av",
        "mujoco",
    ]
    lazy = "def f():\n    import mujoco\nif TYPE_CHECKING:\n    import viser\n"
    assert heavy_at_import(lazy, "m") == []
    assert heavy_at_import("import mujoco\n", "envs/robot_rl_envs/entity/scene.py") == []
    unsafe = "import pickle\ntorch.load(f)\nnp.load(f, allow_pickle=True)\nyaml.load(f)\n"
    assert len(loads_code(unsafe)) == 4
    assert loads_code("torch.load(f, weights_only=True)\nnp.load(f)\nyaml.safe_load(f)\n") == []
