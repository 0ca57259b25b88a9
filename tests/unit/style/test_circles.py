"""No module of ours imports itself through others: not lazily, and not only for types."""

import graphlib

import grimp

PACKAGES = ("robot_rl", "robot_rl_envs", "robot_rl_tasks", "robot_rl_assets", "robot_rl_deploy")


def test_there_are_no_circles_of_imports():
    graph = grimp.build_graph(*PACKAGES, include_external_packages=False, cache_dir=None)
    imports = {module: graph.find_modules_directly_imported_by(module) for module in sorted(graph.modules)}
    assert len(imports) > 300
    graphlib.TopologicalSorter(imports).prepare()  # CycleError names the modules of a circle.
