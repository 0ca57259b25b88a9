"""Every kernel of the environment compiles for a GPU that is not here, within its registers."""

import dataclasses
import json
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import warp as wp
from robot_rl_envs.cameras import Camera, ImageGroup
from robot_rl_envs.make import make_env
from robot_rl_envs.task import Reward
from robot_rl_envs.terms import reward
from robot_rl_tasks.registry import get_task

from robot_rl.errors import UserError
from robot_rl.performance.cache import (
    DESCRIPTION,
    FORMAT,
    PACKAGES,
    _blame,
    _describe,
    _version,
    check_cache,
    use_cache,
)
from robot_rl.performance.chips import CHIPS, occupancy, read_archs
from robot_rl.performance.collect import collect_kernels
from robot_rl.performance.compiled import CompileError, _count_reloads, compile_all

# Registers and spills are those of the optimized code, and without optimizing NVRTC takes minutes.
pytestmark = pytest.mark.usefixtures("optimized")

MAX_REGISTERS = 168
"""More than these, and fewer than twelve warps fit on a multiprocessor."""


def seen_go2():
    """A Go2 with a camera."""
    task = get_task("go2_flat")
    camera = Camera(name="front", body="base_link", pos=(0.36, 0, 0.1), forward=(1, 0, -0.5), width=16, height=12)
    return dataclasses.replace(task, observations={**task.observations, "front": ImageGroup(camera=camera)})


def kernels_of(task, worlds=4):
    return collect_kernels(lambda: make_env(task, num_envs=worlds, engine="mujoco_warp"))


def own(variants):
    return [one for one in variants if not str(one.kernels[0].func.__module__).startswith("mujoco_warp")]


def names_of(variants):
    return {(kernel.key, one.threads) for one in variants for kernel in one.kernels}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A cache: what two tasks share is compiled once."""
    return tmp_path_factory.mktemp("kernels")


@pytest.mark.long
@pytest.mark.parametrize("task", [lambda: get_task("go2_flat"), seen_go2], ids=["go2_flat", "a camera"])
def test_the_environments_kernels_compile_without_spills(task, folder):
    results = compile_all(own(kernels_of(task())), [CHIPS[90]], folder, jobs=2)
    names = {one.name for one in results}
    assert names >= {"act", "after_physics", "observe", "startup"}
    assert {one.name: one.spills for one in results if one.spills} == {}
    assert {one.name: one.registers for one in results if one.registers > MAX_REGISTERS} == {}
    assert all((folder / one.module / f"{one.module}.sm90.cubin").is_file() for one in results)


@pytest.mark.long
def test_what_is_collected_is_what_is_launched(monkeypatch):
    collected, launched = kernels_of(get_task("cartpole")), set()
    real = {name: getattr(wp, name) for name in ("launch", "launch_tiled")}

    def watched(name):
        def launch(kernel, *args, dim, block_dim=256, **options):
            if dim not in (0, (0,)) and 0 not in (dim if isinstance(dim, (tuple, list)) else (dim,)):
                launched.add((kernel.key, block_dim))
            return real[name](kernel, *args, dim=dim, block_dim=block_dim, **options)

        return launch

    for name in real:
        monkeypatch.setattr(wp, name, watched(name))
    env = make_env(get_task("cartpole"), num_envs=4, engine="mujoco_warp")
    env.step(torch.zeros(4, env.num_actions))
    assert launched == names_of(collected)


def test_the_kernels_do_not_depend_on_how_many_worlds_there_are():
    few, many = (kernels_of(get_task("cartpole"), worlds) for worlds in (4, 32))
    assert sorted(one.folder for one in few) == sorted(one.folder for one in many)


def test_nothing_is_launched_and_warp_is_as_before():
    launch = wp.launch
    kernels_of(get_task("cartpole"))
    assert wp.launch is launch


SNIPPET = """
#if defined(__CUDA_ARCH__)
    return no_such_function(x);
#else
    return x;
#endif
"""


@wp.func_native(SNIPPET)
def only_on_a_cpu(x: float) -> float: ...


@reward
def odd(s: Any, i: int) -> float:
    return only_on_a_cpu(s.reward[i])


@pytest.mark.long
def test_a_term_that_does_not_compile_is_named(tmp_path):
    task = get_task("cartpole")
    task = dataclasses.replace(task, rewards={**task.rewards, "odd": Reward(odd, weight=1.0)})
    envs = []

    def build():
        envs.append(make_env(task, num_envs=4, engine="mujoco_warp"))
        return envs[-1]

    with pytest.raises(CompileError, match="no_such_function") as caught:
        compile_all(own(collect_kernels(build)), [CHIPS[90]], tmp_path, jobs=2)
    line = _blame(caught.value, [envs[0].kernels])
    assert line.startswith("rewards.odd: does not compile for sm_90 in only_on_a_cpu: ")
    assert "\n" not in line


def test_a_spilled_register_is_one_that_is_loaded_from_a_fixed_place_on_the_stack():
    assembly = """
.text.one_0a1b_cuda_kernel_forward:
        /*0010*/ STL [R1+0x18], R30 ;
        /*0020*/ @P1 LDL R33, [R49+-0x8] ;
.text.two_2c3d_cuda_kernel_forward:
        /*0010*/ LDL.64 R2, [R1] ;
        /*0020*/ @!P0 LDL R4, [R1+0x8] ;
"""
    assert _count_reloads(assembly) == {"two_2c3d": 2}


@pytest.mark.parametrize(
    ("arch", "threads", "registers", "share"),
    [(90, 64, 168, 0.1875), (90, 256, 32, 1.0), (90, 256, 255, 0.125), (89, 256, 32, 1.0), (86, 1024, 64, 32 / 48)],
)
def test_the_occupancy_is_that_of_nvidias_table(arch, threads, registers, share):
    assert occupancy(CHIPS[arch], threads=threads, registers=registers, shared=0) == pytest.approx(share)


def test_an_unknown_chip_is_refused():
    with pytest.raises(UserError, match=r"arch=sm_90,sm_42: no chip of the name 'sm_42'; "):
        read_archs("sm_90,sm_42")
    assert [chip.arch for chip in read_archs("sm_90, SM_110,sm_90")] == [90, 110]


def description(**changes):
    fitting = {"format": FORMAT, "versions": {name: _version(name) for name in PACKAGES}, "archs": [90]}
    return fitting | changes


@pytest.mark.parametrize(
    ("text", "device", "line"),
    [
        (None, "cuda:0", "has no kernels.json"),
        ("[]", "cuda:0", "is of another version of robot-rl"),
        (json.dumps(description(format="old")), "cuda:0", "is of another version of robot-rl"),
        (json.dumps(description(versions={"warp-lang": "0.1"})), "cuda:0", "was compiled with warp-lang 0.1, here is "),
        (json.dumps(description()), "cpu", "is for a GPU, the run is on device=cpu"),
    ],
)
def test_a_cache_that_does_not_fit_is_refused(text, device, line, tmp_path):
    if text is not None:
        (tmp_path / DESCRIPTION).write_text(text)
    before = wp.config.kernel_cache_dir
    with pytest.raises(UserError, match=line):
        use_cache(tmp_path, device)
    assert wp.config.kernel_cache_dir == before


def test_a_folder_keeps_the_chips_that_it_was_compiled_for_before(tmp_path):
    cfg = SimpleNamespace(task=SimpleNamespace(name="cartpole"))
    (tmp_path / DESCRIPTION).write_text(json.dumps(description(archs=[90])))
    assert _describe(cfg, tmp_path, [CHIPS[110]], [])["archs"] == [90, 110]
    (tmp_path / DESCRIPTION).write_text(json.dumps(description(archs=[90], versions={})))
    assert _describe(cfg, tmp_path, [CHIPS[110]], [])["archs"] == [110]


@pytest.mark.long
def test_a_cache_of_other_settings_is_refused(tmp_path):
    (tmp_path / DESCRIPTION).write_text(json.dumps(description()))
    env = make_env(get_task("cartpole"), num_envs=4)
    with pytest.raises(UserError, match="was compiled for other settings of the task"):
        check_cache(tmp_path, env)


def test_the_command_refuses_what_it_cannot_compile(run):
    for words, line in (
        (["task=cartpole", "arch=sm_42"], "arch=sm_42: no chip of the name 'sm_42'"),
        (["arch=sm_90"], "task: is missing"),
        (["task=cartpole", "num_envs=8"], "num_envs=8: does not affect compile; omit it"),
        (["task=gym:Pendulum-v1"], "task=gym:Pendulum-v1: compile is for robot-rl's own tasks, this one is of "),
    ):
        code, out, err = run("compile", *words)
        assert (code, out) == (2, "")
        assert line in err
        assert err.count("\n") == 1


@pytest.mark.long
def test_the_command_makes_a_cache(run, in_tmp, monkeypatch):
    """With every tenth of the engine's modules: all of them take a minute of one core."""

    def few(make_env):
        variants = collect_kernels(make_env)
        ours = own(variants)
        return [*ours, *[one for one in variants if one not in ours][::10]]

    monkeypatch.setattr("robot_rl.performance.cache.collect_kernels", few)
    code, out, err = run("compile", "task=cartpole", "arch=sm_90", "out=kernels")
    assert code == 0, err
    for word in ("cartpole for sm_90", "observe", "of the engine", "compiled in", "kernels=kernels"):
        assert word in out
    made = json.loads((in_tmp / "kernels" / DESCRIPTION).read_text())
    assert (made["format"], made["task"], made["archs"]) == (FORMAT, "cartpole", [90])
    assert {one["name"] for one in made["kernels"]} >= {"act", "after_physics", "observe", "startup"}
    folders = {path.name for path in (in_tmp / "kernels").iterdir() if path.is_dir()}
    assert folders >= {one["module"] for one in made["kernels"]}
    env = make_env(get_task("cartpole"), num_envs=4, engine="mujoco_warp")
    check_cache(in_tmp / "kernels", env)
    with pytest.raises(UserError, match="was compiled for other settings of the task"):
        check_cache(in_tmp / "kernels", make_env(get_task("go2_flat"), num_envs=4))
    code, _, err = run("train", "task=cartpole", "device=cpu", "kernels=kernels")
    assert code == 2
    assert "kernels=kernels: is for a GPU, the run is on device=cpu" in err


def test_an_error_of_neither_warp_nor_the_compiler_is_not_hidden(monkeypatch, tmp_path):
    from robot_rl.performance import cache
    from robot_rl.runs.settings import resolve_for_gpu

    def breaks(*_, **__):
        raise KeyError("not a term's fault")

    monkeypatch.setattr(cache, "compile_all", breaks)
    with pytest.raises(KeyError, match="not a term's fault"):
        cache.compile_run(resolve_for_gpu({"task": "cartpole"}, "compile"), [CHIPS[90]], tmp_path, jobs=1, keep=True)
    assert list(tmp_path.iterdir()) == []
