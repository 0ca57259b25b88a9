"""What Isaac Lab does not support is one line and exit code 2, and nothing is written."""

import pytest

pytestmark = pytest.mark.isaac
CARTPOLE = "task=isaac/Isaac-Cartpole-Direct"
PENDULUM = "task=isaac/Isaac-Pendulum-MARL-Direct"


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (
            ("task=isaac/Isaac-Velocity-Flat-Unitree-Go2-v0",),
            "Isaac Lab 3.0.0 registers no 'Isaac-Velocity-Flat-Unitree-Go2-v0'; did you mean "
            "'Isaac-Velocity-Flat-UnitreeGo2'?",
        ),
        (("task=isaac/no_such_module:X",), "cannot import no_such_module; install it, or start where its file is"),
        (
            (PENDULUM, "assets=own", "num_envs=2", "learner=ppo"),
            f"learner=ppo: trains 1 agent, {PENDULUM} has 2: cart, pendulum; use learner=mappo",
        ),
        (
            (PENDULUM, "assets=own", "num_envs=2", "groups=[[cart,pole]]"),
            "groups: 'pole' is not one of the 2 robots cart, pendulum",
        ),
        (("task=Isaac-Cartpole",), "an environment of Isaac Lab is task=isaac/Isaac-Cartpole"),
        ((CARTPOLE, "physics=isaacsim_physx", "assets=own"), "needs Isaac Sim or OvPhysX then, which is not installed"),
        ((CARTPOLE, "physics=newton_mjwrp"), "Unknown preset(s): newton_mjwrp"),
        ((CARTPOLE, "presets=nothing"), "Unknown preset(s): nothing"),
        ((CARTPOLE, "assets=/no/such/folder"), "assets=/no/such/folder: is no folder"),
        ((CARTPOLE, "env.action_scal=1"), "unknown key 'env.action_scal': env has no 'action_scal'; did you mean"),
        ((CARTPOLE, "env.action_scale=word"), "env.action_scale=word: must be a number"),
        ((CARTPOLE, "env.scene=3"), "env.scene=3: is a group; set one of"),
        ((CARTPOLE, "env.scene.num_envs=8"), "env.scene.num_envs: is set by num_envs="),
        ((CARTPOLE, "env.sim.device=cuda:0"), "env.sim.device: is set by device="),
        ((CARTPOLE, "env.decimation=0"), "env.decimation=0: must be above 0"),
        ((CARTPOLE, "env.episode_length_s=-1"), "env.episode_length_s=-1: must be above 0"),
        ((CARTPOLE, "env.sim.dt=0"), "env.sim.dt=0: must be above 0"),
        (
            (CARTPOLE, "assets=own", "num_envs=2", "env.scene=null"),
            "Isaac Lab fails with env.scene=None: AttributeError",
        ),
        ((CARTPOLE, "action_clip=-1"), "action_clip=-1: must be a number above 0, or null for no bound"),
        ((CARTPOLE, "engine=mujoco"), "brings its own physics; choose it with physics="),
        ((CARTPOLE, "num_threads=2"), "leave num_threads= out"),
    ],
)
def test_bad_input_is_one_line(run, tmp_path, words, line):
    code, _, err = run("train", *words)
    assert code == 2
    assert err.count("\n") == 1
    assert line in err
    assert not list(tmp_path.iterdir())


def test_a_file_of_garbage_is_named(run, tmp_path):
    (tmp_path / "usd").mkdir()
    (tmp_path / "usd" / "cartpole.usd").write_bytes(bytes(range(1, 250)))
    code, _, err = run("train", CARTPOLE, "num_envs=2", "assets=usd")
    assert code == 2
    assert err.count("\n") == 1
    assert f"Isaac Lab fails with assets={tmp_path / 'usd'}: " in err


def test_a_file_that_cannot_be_had_is_named_with_the_way_out(run, monkeypatch, tmp_path):
    from robot_rl.sources.isaaclab import task

    monkeypatch.setattr(task, "_answers", lambda url: False)
    code, _, err = run("train", CARTPOLE)
    assert code == 2
    assert err.count("\n") == 1
    assert (
        "Robots/Classic/Cartpole/cartpole.usd is not available here (offline?); put cartpole.usd into a folder" in err
    )
    assert "assets=<folder>, or assets=own" in err
    assert not list(tmp_path.iterdir())
