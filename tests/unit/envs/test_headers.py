"""Warp's header is parsed once for all threads and processes, and never read half."""

import threading

import pytest
import warp as wp
from robot_rl_envs.headers import SharedHeaders, share_headers

OPTIONS = {"use_precompiled_headers": True, "optimization_level": 2, "block_dim": 1}


@pytest.fixture
def builds(tmp_path):
    """A stand-in of Warp's build that writes a header, and what it was asked to compile."""
    calls = []

    def build(obj_path, cpp_path, **options):
        header = f"{options['pch_dir']}/builtin_o{options['optimization_level']}.pch"
        calls.append((cpp_path.rpartition("/")[2], header))
        if cpp_path.endswith("empty.cpp"):
            with open(header, "x") as file:
                file.write("whole")
        else:
            with open(header) as file:
                assert file.read() == "whole"

    return calls, SharedHeaders(build, tmp_path / "headers")


def compile_in_threads(shared, count, **options):
    pch = str(shared.folder)
    failures = []

    def work(k):
        try:
            shared.build(f"{k}.o", f"{k}.cpp", pch_dir=pch, verbose=k == 0, **OPTIONS | options)
        except Exception as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(k,)) for k in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []


def test_threads_share_one_header_for_each_set_of_options(builds):
    calls, shared = builds
    compile_in_threads(shared, 8)
    compile_in_threads(shared, 3, optimization_level=0)
    assert [name for name, _ in calls].count("empty.cpp") == 2
    assert len(calls) == 2 + 8 + 3
    assert sorted(path.name for path in shared.folder.glob("*.pch")) == ["builtin_o0.pch", "builtin_o2.pch"]


def test_another_process_takes_the_header_that_is_there_and_makes_one_that_was_removed(builds):
    calls, shared = builds
    compile_in_threads(shared, 1)
    compile_in_threads(SharedHeaders(shared._build, shared.folder), 1)
    assert [name for name, _ in calls] == ["empty.cpp", "0.cpp", "0.cpp"]
    next(shared.folder.glob("*.pch")).unlink()
    compile_in_threads(SharedHeaders(shared._build, shared.folder), 1)
    assert [name for name, _ in calls].count("empty.cpp") == 2


def test_a_build_with_a_directory_of_its_own_is_left_alone(builds, tmp_path):
    calls, shared = builds
    shared.build("x.o", "empty.cpp", pch_dir=str(tmp_path), **OPTIONS)
    assert [name for name, _ in calls] == ["empty.cpp"]


def test_a_cache_that_was_removed_meanwhile_stops_no_build(tmp_path):
    built = []
    shared = SharedHeaders(lambda obj_path, cpp_path, **options: built.append(cpp_path), tmp_path / "headers")
    shared.folder.rmdir()
    shared.build("x.o", "x.cpp", pch_dir=str(shared.folder), **OPTIONS)
    assert built == ["x.cpp"]


def test_warp_compiles_with_the_shared_header(tmp_path, monkeypatch):
    """Fails with a version of Warp that names or uses these private functions otherwise."""
    from warp._src import build, context

    wp.init()
    monkeypatch.setattr(wp.config, "kernel_cache_dir", str(tmp_path))
    monkeypatch.setattr(build, "build_cpu", build.build_cpu)  # Restored afterwards, as is the next one.
    monkeypatch.setattr(context.runtime, "get_clang_pch_dir", context.runtime.get_clang_pch_dir)
    shared = share_headers.__wrapped__()
    assert shared is not None

    @wp.kernel(module="unique")
    def double_it(values: wp.array(dtype=wp.float32)):
        i = wp.tid()
        values[i] = 2.0 * values[i]

    values = wp.array([1.0, 2.0], dtype=wp.float32, device="cpu")
    wp.launch(double_it, dim=2, inputs=[values], device="cpu")
    assert values.numpy().tolist() == [2.0, 4.0]
    assert len(list(shared.folder.glob("*.pch"))) == 1
    assert shared.folder.parent == tmp_path


def test_an_older_warp_goes_its_own_way(monkeypatch):
    wp.init()
    monkeypatch.delattr(wp, "get_cpu_kernel_cache_key")
    assert share_headers.__wrapped__() is None


def test_without_a_folder_that_can_be_written_warp_goes_its_own_way(tmp_path, monkeypatch):
    from warp._src import build

    wp.init()
    before = build.build_cpu
    (tmp_path / "file").write_text("")
    monkeypatch.setattr(wp.config, "kernel_cache_dir", str(tmp_path / "file"))
    assert share_headers.__wrapped__() is None
    assert build.build_cpu == before
