"""Isaac Lab's real environments: on Newton, on the CPU, with the project's own USD files.

Isaac Lab knows one simulation a process: a test closes its environment before the next makes one.
"""

import contextlib

import pytest


@pytest.fixture
def make():
    """Makes environments of Isaac Lab for the learner, which are closed at the test's end."""
    from robot_rl.sources.isaaclab.task import IsaacTask

    with contextlib.ExitStack() as after:

        def env(name, num_envs=4, seed=1, change=lambda cfg: None, **options):
            task = IsaacTask(name=f"isaac/{name}", **{"assets": "own", **options})
            cfg = task.load_cfg(num_envs)
            change(cfg)
            made = task.make_env(num_envs, seed=seed, cfg=cfg)
            after.callback(made.close)
            return made

        yield env


@pytest.fixture
def run(run, monkeypatch, tmp_path):
    """Calls the command line in an empty folder; returns its exit code, stdout and stderr."""
    monkeypatch.chdir(tmp_path)
    return run
