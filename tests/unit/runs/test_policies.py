"""Which settings the policy that a user names is run with."""

from robot_rl.runs.labels import Labels, write_labels
from robot_rl.runs.policies import find_policy, policies_of_robot
from robot_rl.runs.run_dir import RunDir
from robot_rl.runs.settings import default_tree


def test_a_run_of_a_missing_gpu_runs_on_what_there_is(tmp_path):
    run_dir = RunDir.create(tmp_path, "cartpole", 1, "mine")
    tree = default_tree("cartpole", "cpu") | {"device": "cuda:99", "engine": "mujoco_warp", "root": str(tmp_path)}
    run_dir.write_config(tree, [])
    cfg = find_policy("mine", "", str(tmp_path)).cfg
    assert (cfg.device, cfg.engine) != ("cuda:99", "mujoco_warp")
    assert (
        find_policy("mine", "", str(tmp_path), {"engine": "mujoco_warp", "device": "cpu"}).cfg.engine == "mujoco_warp"
    )


def test_policies_of_a_robot_are_shipped_ones_and_runs_that_began(tmp_path):
    for task, name, rows in (("go2_flat", "01", 1), ("go2_flat", "02", 0), ("cartpole", "03", 1), ("mine", "04", 1)):
        run_dir = RunDir.create(tmp_path, task, 1, name)
        run_dir.write_config({"task": task, "max_iterations": 3}, [])
        run_dir.metrics_file.write_text('{"iteration": 1}\n' * rows)
    write_labels(tmp_path / "mine" / "04", Labels(name="best"))
    found = policies_of_robot("unitree_go2", "mine", str(tmp_path))
    assert {"go2_flat", "go2_getup"} <= set(found)
    assert not {"g1_flat", "panda_reach", "03 (cartpole)", "02 (go2_flat)"} & set(found)
    assert (found["go2_flat"], found["01 (go2_flat)"], found["best (mine)"]) == (
        *(("", "go2_flat"), ("go2_flat/01", "")),
        ("mine/04", ""),
    )
