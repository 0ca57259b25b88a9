"""Whether the tests that every change needs catch faults: lines broken on purpose, and the test that fails first.

    python benchmarks/mutations.py out=benchmarks/mutations.json

Each fault of the table below is put into a copy of HEAD, then the tests of its part run as `make test` and
`make test-deploy` run them, without the long ones, until one fails. The binary is built in the copy, so that only what
changed is compiled. `only=NAME,NAME` takes some of the faults. The exit code is 0 if each is caught.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from words import read_words, run_script

from robot_rl.errors import UserError, suggest
from robot_rl.files import write_json
from robot_rl.machine import machine_facts, package_versions

ROOT = Path(__file__).parents[1]
PACKAGES = (".", "envs", "tasks", "sim_assets", "deploy_jetson")
KNOWN = {"only": "", "out": ""}
RUNTIME = "deploy_jetson/runtime"
LEARN = ("tests/unit/learn", "tests/unit/resume")
PHYSICS = ("tests/unit/envs", "tests/unit/actuation")
ROBOT = ("tests/deploy/core", "tests/deploy/safety", "tests/deploy/backends")
SAVED = ("tests/unit/learn/test_checkpoint.py", "tests/unit/learn/test_saving.py", "tests/unit/fuzz")
LAUNCH = ("tests/unit/cluster/manifests", "tests/unit/runs", "tests/unit/cli/test_launching.py")


@dataclass(frozen=True, slots=True)
class Mutation:
    """A line that is broken.

    Attributes:
        file: path below the repository.
        right: text that is there, once.
        wrong: text in its place.
        tests: paths of the tests of its part.
    """

    file: str
    right: str
    wrong: str
    tests: tuple[str, ...]


PPO = "robot_rl/learn/algorithms/ppo"
KERNELS = "envs/robot_rl_envs/codegen/step_kernels.py.txt"
SOURCES = f"{RUNTIME}/src"
MUTATIONS: dict[str, Mutation] = {
    "time-out bonus without discount": Mutation(
        f"{PPO}/gae.py", "gamma * final_values, torch", "final_values, torch", LEARN
    ),
    "advantages over an end": Mutation(
        f"{PPO}/gae.py", "decay = alive * (gamma * lam)", "decay = torch.full_like(alive, gamma * lam)", LEARN
    ),
    "normalizer's variance": Mutation(
        "robot_rl/learn/networks/normalizer.py",
        "(var - self.var + delta * (mean - self.mean))",
        "(var - self.var)",
        LEARN,
    ),
    "sign of the entropy": Mutation(
        f"{PPO}/ppo.py", "- cfg.entropy_coef * policy.entropy", "+ cfg.entropy_coef * policy.entropy", LEARN
    ),
    "invalid samples learned from": Mutation(
        f"{PPO}/ppo.py",
        "weight = valid.to(value.dtype)",
        "weight = torch.ones_like(value)",
        LEARN,
    ),
    "random stream begins again": Mutation(
        "robot_rl/learn/optim.py", "self.generator.set_state(state_dict[prefix + RANDOM].cpu())", "pass", LEARN
    ),
    "sign in rotate_inverse": Mutation(
        "envs/robot_rl_envs/quat.py",
        "return v - q[0] * t + wp.cross(u, t)",
        "return v + q[0] * t + wp.cross(u, t)",
        PHYSICS,
    ),
    "time limit a step late": Mutation(KERNELS, "_s} - 0.5 * s.step_dt", "_s} + 0.5 * s.step_dt", PHYSICS),
    "reward without the time step": Mutation(KERNELS, "{weight} * {call} * s.step_dt", "{weight} * {call}", PHYSICS),
    "action before the last": Mutation(
        KERNELS, "s.prev_prev_action[i, j] = s.prev_action[i, j]", "s.prev_prev_action[i, j] = s.action[i, j]", PHYSICS
    ),
    "speed limit of actions": Mutation(
        "envs/robot_rl_envs/entity/scene.py",
        "return self.actions.limit_speed * joint.velocity_limit",
        "return joint.velocity_limit",
        PHYSICS,
    ),
    "binary: speed limit": Mutation(
        f"{SOURCES}/safety.cpp", "std::abs(velocity) <= limits_", "velocity <= limits_", ROBOT
    ),
    "binary: observation history": Mutation(
        f"{SOURCES}/observe.cpp",
        "std::memmove(history.data(), history.data() + size,",
        "std::memmove(history.data(), history.data(),",
        ROBOT,
    ),
    "binary: gravity in the base frame": Mutation(
        f"{SOURCES}/observe.cpp", "value[0] = 2.0f * (w * y - x * z);", "value[0] = 2.0f * (w * y + x * z);", ROBOT
    ),
    "binary: tilt limit": Mutation(
        f"{SOURCES}/safety.cpp", "if (cosine >= tilt_cos_) return {};", "if (cosine >= -tilt_cos_) return {};", ROBOT
    ),
    "binary: a lasting fault is cleared": Mutation(
        f"{SOURCES}/commander.cpp",
        "fault == Fault::kRefused || fault == Fault::kInternal",
        "fault == Fault::kRefused",
        ROBOT,
    ),
    "Slurm: a lost process is no reason to requeue": Mutation(
        "robot_rl/cluster/launchers/slurm.py", "-lt {MOST_RETRIES} ]'", "-lt 0 ]'", LAUNCH
    ),
    "launcher: exit code of several processes": Mutation(
        "robot_rl/cluster/launchers/exit_codes.py", "else max([*others, *known, 0])", "else 0", LAUNCH
    ),
    "checkpoint: checksum not compared": Mutation(
        "robot_rl/learn/checkpoints/checkpoint.py",
        "    if found != wanted:\n",
        "    if False and found != wanted:\n",
        SAVED,
    ),
    "checkpoint: not renamed into place whole": Mutation(
        "robot_rl/learn/checkpoints/checkpoint.py",
        "        staging.rename(directory)\n",
        "        shutil.copytree(staging, directory)\n",
        SAVED,
    ),
}


def build(tree: Path) -> None:
    """Compile the binary and its Python module in a folder of the tree; nanobind comes from the package registry."""
    folder = tree / RUNTIME / "build" / "mutations"
    tools = folder.with_name("tools")
    env = os.environ | {"PYTHONPATH": str(tools)}
    if not folder.exists():
        pip = [sys.executable, "-m", "pip", "install", "-q", "--target", str(tools), "nanobind>=2.7"]
        subprocess.run(pip, check=True, capture_output=True)
        options = ["-G", "Ninja", f"-DPython_EXECUTABLE={sys.executable}", "-DCMAKE_BUILD_TYPE=Release"]
        run_tool(["cmake", "-S", str(tree / RUNTIME), "-B", str(folder), *options], env)
    run_tool(["cmake", "--build", str(folder), "--target", "robot-rl-infer", "_core"], env)


def run_tool(command: list[str], env: dict[str, str]) -> None:
    """Run a command; end with its output if it fails."""
    done = subprocess.run(command, check=False, capture_output=True, text=True, env=env)
    if done.returncode:
        raise SystemExit(f"{' '.join(command)}\n{done.stdout[-2000:]}{done.stderr[-2000:]}")


def run_tests(tree: Path, tests: tuple[str, ...]) -> str:
    """Return the test that fails first; "" if all pass."""
    paths = [*(str(tree / package) for package in PACKAGES), str(tree / RUNTIME / "build" / "mutations" / "python")]
    env = os.environ | {"PYTHONPATH": os.pathsep.join(paths)}
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-n", "2", "-m", "not long and not realtime", *tests]
    done = subprocess.run(command, cwd=tree, env=env, check=False, capture_output=True, text=True)
    found = re.search(r"^(?:FAILED|ERROR) (\S+)", done.stdout, re.MULTILINE)
    if done.returncode and not found:
        raise SystemExit(done.stdout[-3000:] + done.stderr[-3000:])
    return found[1] if found else ""


def try_mutation(tree: Path, name: str, mutation: Mutation) -> dict[str, Any]:
    """Break the line, run the tests, and repair it; return a row of the table."""
    path = tree / mutation.file
    text = path.read_text()
    if text.count(mutation.right) != 1:
        raise SystemExit(
            f"{name}: {mutation.right!r} is {text.count(mutation.right)} times in {mutation.file}, not once"
        )
    start = time.perf_counter()
    path.write_text(text.replace(mutation.right, mutation.wrong))
    try:
        if mutation.tests is ROBOT:
            build(tree)
        caught_by = run_tests(tree, mutation.tests)
    finally:
        path.write_text(text)
    return {
        "name": name,
        "file": mutation.file,
        "caught_by": caught_by,
        "seconds": round(time.perf_counter() - start, 1),
    }


def main(arguments: list[str]) -> int:
    """Try the mutations, print a row each, write the JSON."""
    options = read_words(arguments, KNOWN)
    names = options["only"].split(",") if options["only"] else list(MUTATIONS)
    for name in names:
        if name not in MUTATIONS:
            raise UserError(f"only={name}: no such fault; {suggest(name, MUTATIONS)}")
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        tree = Path(folder) / "tree"
        git = ["git", "-C", str(ROOT), "worktree"]
        subprocess.run([*git, "add", "--detach", "-q", str(tree)], check=True)
        try:
            if any(MUTATIONS[name].tests is ROBOT for name in names):
                build(tree)
            for name in names:
                rows.append(try_mutation(tree, name, MUTATIONS[name]))
                print(f"{name:48} {rows[-1]['seconds']:6.1f} s  {rows[-1]['caught_by'] or 'NOT CAUGHT'}", flush=True)
        finally:
            subprocess.run([*git, "remove", "--force", str(tree)], check=True)
    caught = sum(bool(row["caught_by"]) for row in rows)
    print(f"{caught} of {len(rows)} caught")
    if options["out"]:
        facts = {"machine": machine_facts(), "versions": package_versions()}
        write_json(Path(options["out"]), {"caught": caught, "of": len(rows), "rows": rows, **facts})
    return int(caught < len(rows))


if __name__ == "__main__":
    run_script(main)
