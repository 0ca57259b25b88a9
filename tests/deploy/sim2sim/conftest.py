"""Sessions of the real binary with the simulated Go2."""

import contextlib

import pytest

from robot_rl.sim2sim.faults import read_faults
from robot_rl.sim2sim.plant import LONE
from robot_rl.sim2sim.session import Session, SessionCfg

# On a machine that others use the simulation stops for tens of milliseconds; a limit under test is set by its test.
LENIENT = {
    "stand_s": 0.2,
    "blend_s": 0.1,
    "limits.state_age_s": 1.0,
    "limits.state_frozen_s": 1.0,
    "limits.missed_deadlines": 100.0,
    "limits.operator_s": 3.0,
}
NO_REALTIME = ("--fifo-writer", "0", "--fifo-policy", "0", "--watchdog-timeout", "5")


@pytest.fixture(scope="session")
def go2_task():
    from robot_rl_tasks.registry import get_task

    return get_task("go2_flat")


@pytest.fixture
def run_session():
    """A function that runs a session of one robot and gives it, ended, with its report."""
    with contextlib.ExitStack() as stack:

        def run(task, bundle, cfg, folder):
            made = stack.enter_context(contextlib.closing(Session(task, {LONE: bundle}, cfg, folder)))
            made.run()
            return made, made.report()

        yield run


@pytest.fixture
def session(run_session, go2_task, go2_bundle, tmp_path):
    """A function that runs a session of a Go2."""

    def run(faults="", *, settings=None, seconds=3.0, arguments=(), command="0.5,0,0", **options):
        cfg = SessionCfg(
            seconds=seconds,
            command=command,
            faults=read_faults(faults),
            recover=options.pop("recover", False),
            watch_s=0.2,
            settings=LENIENT | (settings or {}),
            arguments=(*NO_REALTIME, *arguments),
            **options,
        )
        return run_session(go2_task, go2_bundle, cfg, tmp_path)

    return run


@pytest.fixture
def arm_session(run_session, tmp_path, toy_actor):
    """A function that runs a session of an arm with a target of some kind."""
    from robot_rl_deploy.export import export_policy
    from robot_rl_deploy.parts import TrainingSpec
    from robot_rl_envs.make import make_env

    from tests.unit.arm import KINDS, make_arm_task

    def run(kind, command):
        task = make_arm_task(tmp_path / "arm3.xml", KINDS[kind])
        env = make_env(task, num_envs=1, engine="mujoco", num_threads=1)
        size = env.get_observations()["actor"].shape[1]
        training = TrainingSpec(run_id="a", task="reach", git_commit="unknown", iteration=1)
        export_policy(env, type(toy_actor)(size, 3), tmp_path / "bundle", run=training, steps=200)
        env.close()
        cfg = SessionCfg(seconds=0.5, command=command, settings=LENIENT, arguments=NO_REALTIME, recover=False)
        return run_session(task, tmp_path / "bundle", cfg, tmp_path)

    return run
