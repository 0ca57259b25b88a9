"""Which settings the policy that a user names is run with."""

from robot_rl.runs.policies import find_policy
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
