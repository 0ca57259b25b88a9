"""No module of ours imports itself through others: not lazily, not only for types, and not by a string."""

import ast
import graphlib
from pathlib import Path

import grimp

ROOT = Path(__file__).parents[3]
PACKAGES = {
    "robot_rl": ".",
    "robot_rl_envs": "envs",
    "robot_rl_tasks": "tasks",
    "robot_rl_assets": "sim_assets",
    "robot_rl_deploy": "deploy_jetson",
}


def graph():
    """Each module, and the modules that its statements import."""
    known = grimp.build_graph(*PACKAGES, include_external_packages=False, cache_dir=None)
    return {module: known.find_modules_directly_imported_by(module) for module in sorted(known.modules)}


def by_strings(module):
    """The constant strings with which a module calls import_module."""
    package = module.partition(".")[0]
    path = ROOT / PACKAGES[package] / module.replace(".", "/")
    path = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
    calls = (node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Call))
    for call in calls:
        name = getattr(call.func, "attr", getattr(call.func, "id", ""))
        if name in ("import_module", "__import__") and call.args and isinstance(call.args[0], ast.Constant):
            yield call.args[0].value


def circles(imports):
    """The groups of modules that reach each other, as sets (Tarjan's strongly connected components)."""
    order, low, stack, found = {}, {}, [], []

    def visit(module):
        order[module] = low[module] = len(order)
        stack.append(module)
        for other in imports[module]:
            if other not in order:
                visit(other)
            if other in stack:
                low[module] = min(low[module], low[other])
        if low[module] == order[module]:
            at = stack.index(module)
            group, stack[at:] = set(stack[at:]), []
            if len(group) > 1:
                found.append(group)

    for module in imports:
        if module not in order:
            visit(module)
    return found


def test_there_are_no_circles_of_imports():
    imports = graph()
    assert len(imports) > 300
    graphlib.TopologicalSorter(imports).prepare()  # CycleError names the modules of a circle.


def test_imports_by_strings_close_no_new_circle():
    imports = graph()
    for module, others in imports.items():
        imports[module] = others | ({*by_strings(module)} & set(imports)) - {module}
    found = {min(group): group for group in circles(imports)}
    assert not found, "\n".join(" ".join(sorted(group)) for group in found.values())


def test_a_circle_is_seen():
    assert circles({"a": {"b"}, "b": {"c"}, "c": {"b"}, "d": {"a"}}) == [{"b", "c"}]
