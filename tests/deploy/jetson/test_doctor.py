"""The doctor: what it says of machines that are made up, file by file, and of the one the tests run on."""

import json
import shutil
import subprocess
import sys

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from robot_rl_deploy.jetson.doctor import check_files, format_cpus, make_options, parse_cpus
from robot_rl_deploy.tarball import JETSON

CPU = "sys/devices/system/cpu"
ZONE = "sys/class/thermal/thermal_zone0"
GPU = "sys/class/devfreq/gpu-gpc-0"
LIMITS = (
    "Limit                     Soft Limit           Hard Limit           Units     \n"
    "Max locked memory         {memlock}            {memlock}            bytes     \n"
    "Max realtime priority     {rtprio}             {rtprio}                       \n"
)

# A Jetson Thor as one wants it, in the files that the kernel and JetPack give.
THOR = {
    "proc/device-tree/model": "NVIDIA Jetson AGX Thor Developer Kit\0",
    "etc/nv_tegra_release": "# R38 (release), REVISION: 2.1, GCID: 42061081, BOARD: generic, EABI: aarch64",
    "proc/sys/kernel/osrelease": "6.8.12-rt-tegra\n",
    "proc/sys/kernel/version": "#1 SMP PREEMPT_RT Thu Aug 21 2025\n",
    "sys/kernel/realtime": "1\n",
    f"{CPU}/isolated": "12-13\n",
    f"{CPU}/nohz_full": "12-13\n",
    "proc/sys/kernel/sched_rt_runtime_us": "950000\n",
    "proc/sys/kernel/sched_rt_period_us": "1000000\n",
    f"{ZONE}/type": "tj-thermal\n",
    f"{ZONE}/temp": "51000\n",
    f"{ZONE}/trip_point_0_type": "active\n",
    f"{ZONE}/trip_point_0_temp": "45000\n",
    f"{ZONE}/trip_point_1_type": "passive\n",
    f"{ZONE}/trip_point_1_temp": "99000\n",
    "sys/class/hwmon/hwmon3/oc1_event_cnt": "0\n",
    "sys/class/hwmon/hwmon3/oc3_event_cnt": "0\n",
    f"{CPU}/cpu0/cpuidle/state0/name": "WFI\n",
    f"{CPU}/cpu0/cpuidle/state0/latency": "1\n",
    f"{CPU}/cpu0/cpuidle/state1/name": "c7\n",
    f"{CPU}/cpu0/cpuidle/state1/latency": "5000\n",
    f"{CPU}/cpu0/cpuidle/state1/disable": "1\n",
    f"{GPU}/cur_freq": "1575000000\n",
    f"{GPU}/min_freq": "1575000000\n",
    f"{GPU}/max_freq": "1575000000\n",
    "var/lib/nvpmodel/status": "pmode:0000 fmode:quiet\n",
    "sys/devices/system/clocksource/clocksource0/current_clocksource": "arch_sys_counter\n",
    "proc/self/limits": LIMITS.format(memlock="unlimited", rtprio="95"),
    "proc/self/status": "Name:\trobot-rl-infer\nCapEff:\t0000000000000000\n",
}
for cpu in range(14):
    THOR[f"{CPU}/cpu{cpu}/cpufreq/scaling_governor"] = "performance\n"
    for name in ("cpuinfo_max_freq", "scaling_max_freq", "scaling_cur_freq", "cpuinfo_cur_freq"):
        THOR[f"{CPU}/cpu{cpu}/cpufreq/{name}"] = "2601000\n"
FEW = sorted(name for name in THOR if "/cpu" not in name.removeprefix(CPU) or "/cpu0/" in name)


def findings(root, cpu_writer, cpu_policy):
    """The doctor's findings for the machine with files below a folder."""
    return check_files(make_options([f"--cpu-writer={cpu_writer}", f"--cpu-policy={cpu_policy}"]), root)


@pytest.fixture
def doctor(rt, binary_env):
    """A function that runs the doctor with options until it ends."""

    def run(*words, **env):
        command = [sys.executable, JETSON / "doctor.py", "--bin", rt.binary().parent, *map(str, words)]
        return subprocess.run(command, capture_output=True, text=True, timeout=60, env=binary_env | env, check=False)

    return run


@pytest.fixture
def look(tmp_path):
    """Writes a machine's files and gives the doctor's findings by name."""

    def look(files, cpu_writer=12, cpu_policy=13):
        for name, text in files.items():
            if text is not None:
                path = tmp_path / name
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(text)
        return {row.name: row for row in findings(tmp_path, cpu_writer, cpu_policy)}

    return look


def test_a_machine_that_is_set_up_well_is_all_good(look):
    rows = look(THOR)
    assert {name: row.found for name, row in rows.items() if row.verdict != "good"} == {}
    assert not any(row.remedy for row in rows.values())
    assert rows["board"].found == "NVIDIA Jetson AGX Thor Developer Kit, Jetson Linux R38 (release), REVISION: 2.1"
    assert rows["isolated_cpus"].found == "12-13, tickless 12-13"
    assert rows["heat"].found == "hottest 51 C; 'tj-thermal' is 48 C below its throttling limit"


@pytest.mark.parametrize(
    ("changes", "name", "verdict", "said"),
    [
        ({"etc/nv_tegra_release": "# R36 (release), REVISION: 4.3, GCID: 1"}, "board", "advice", "JetPack 7"),
        (
            {"sys/kernel/realtime": None, "proc/sys/kernel/version": "#1 SMP PREEMPT"},
            "kernel",
            "advice",
            "preemptible, not real-time",
        ),
        ({f"{CPU}/isolated": "\n"}, "isolated_cpus", "advice", "nohz_full=12-13"),
        ({f"{CPU}/isolated": "10-12"}, "isolated_cpus", "advice", "--cpu-policy 13 is not among them"),
        ({"proc/sys/kernel/sched_rt_runtime_us": "500000"}, "fifo_share", "advice", "50 % of a processor"),
        ({"proc/sys/kernel/sched_rt_runtime_us": "-1"}, "fifo_share", "good", "never throttled"),
        ({f"{ZONE}/temp": "93000"}, "heat", "advice", "6 C below"),
        ({f"{ZONE}/temp": "99500"}, "heat", "bad", "slowed down by heat"),
        ({"sys/class/hwmon/hwmon3/oc3_event_cnt": "2"}, "throttling", "bad", "(oc3: 2)"),
        ({f"{CPU}/cpu1/thermal_throttle/core_throttle_count": "7"}, "throttling", "advice", "7 times"),
        ({f"{CPU}/cpu3/cpufreq/scaling_governor": "schedutil"}, "governor", "advice", "schedutil on 3"),
        ({f"{CPU}/cpu3/cpufreq/cpuinfo_cur_freq": "649000"}, "cpu_clock", "bad", "25 % of the requested clock"),
        ({f"{CPU}/cpu4/cpufreq/scaling_max_freq": "972000"}, "cpu_clock", "advice", "processors 4 are kept below"),
        ({f"{CPU}/cpu0/cpuidle/state1/disable": "0"}, "idle_states", "advice", "'c7', 5000 us"),
        ({f"{GPU}/min_freq": "315000000"}, "gpu_clock", "advice", "may be lowered"),
        ({"var/lib/nvpmodel/status": "pmode:0001"}, "power_mode", "advice", "mode 1"),
        (
            {"sys/devices/system/clocksource/clocksource0/current_clocksource": "hpet"},
            "clock_source",
            "advice",
            "slow to read",
        ),
        ({"proc/self/limits": LIMITS.format(memlock="8388608", rtprio="95")}, "memlock", "bad", "8 MiB"),
        ({"proc/self/limits": LIMITS.format(memlock="unlimited", rtprio="0")}, "rtprio", "bad", "80 is needed"),
        ({"proc/self/limits": "what is this"}, "memlock", "unknown", "does not report"),
    ],
)
def test_each_trouble_has_a_line_that_says_what_to_do(look, changes, name, verdict, said):
    row = look(THOR | changes)[name]
    assert row.verdict == verdict
    assert said in row.found + row.remedy
    assert bool(row.remedy) == (verdict in ("advice", "bad"))


def test_capabilities_count_where_limits_forbid(look):
    status = "CapEff:\t0000000000804000\n"  # CAP_SYS_NICE and CAP_IPC_LOCK
    rows = look(THOR | {"proc/self/limits": LIMITS.format(memlock="65536", rtprio="0"), "proc/self/status": status})
    assert rows["memlock"].verdict == rows["rtprio"].verdict == "good"


def test_an_isolated_core_that_nothing_was_given_to_is_named(look):
    row = look(THOR, cpu_writer=-1, cpu_policy=-1)["isolated_cpus"]
    assert row.verdict == "advice"
    assert "give --cpu-writer one of them" in row.remedy


def test_a_machine_that_says_nothing_breaks_nothing(look):
    rows = look({})
    assert {row.verdict for row in rows.values()} <= {"good", "unknown", "advice"}
    assert rows["board"].found == "no Jetson"


@pytest.fixture(scope="module")
def thor(tmp_path_factory):
    """The folder of a well-set machine."""
    root = tmp_path_factory.mktemp("thor")
    for name in FEW:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(THOR[name])
    return root


@settings(max_examples=50, deadline=None)
@given(
    st.dictionaries(st.sampled_from(FEW), st.binary(max_size=40) | st.from_regex(r"#? ?R?[0-9,-]*\n?").map(str.encode))
)
def test_files_that_hold_anything_break_nothing(thor, changes):
    for name, data in changes.items():
        (thor / name).write_bytes(data)
    rows = findings(thor, 12, 13)
    for name in changes:
        (thor / name).write_text(THOR[name])
    assert len(rows) == 14
    assert all(row.verdict in ("good", "advice", "bad", "unknown") for row in rows)


@given(st.sets(st.integers(0, 300)))
def test_sets_of_processors_are_read_and_written_as_the_kernel_does(cpus):
    short = format_cpus(parse_cpus(",".join(str(cpu) for cpu in sorted(cpus))))
    assert parse_cpus(short) == cpus
    seen = set()
    for part in filter(None, short.split(",")):
        first, _, last = part.partition("-")
        seen |= set(range(int(first), int(last or first) + 1))
    assert seen == cpus


def test_it_looks_at_this_machine(doctor, tmp_path):
    report = tmp_path / "doctor.json"
    done = doctor("--seconds", "0.05", "--report", report)
    *lines, verdict = done.stdout.splitlines()
    checks = json.loads(report.read_text())["checks"]
    assert [line.split()[0] for line in lines] == [check["verdict"] for check in checks]
    assert {"kernel", "rtprio", "memlock", "fifo", "onnxruntime", "tensorrt", "wake_up"} <= {c["name"] for c in checks}
    bad = sum(check["verdict"] == "bad" for check in checks)
    assert done.returncode == (3 if bad else 0)
    assert verdict.startswith(f"doctor: {bad} bad" if bad else ("doctor: nothing bad", "doctor: all good"))


def test_it_finds_the_library_that_the_binary_loads(doctor, infer, go2_bundle):
    (line,) = (line for line in doctor("--seconds", "0.02").stdout.splitlines() if line.split()[1] == "onnxruntime")
    assert line.startswith("good")
    said = infer("--bundle", go2_bundle, "--check", "--backend", "onnxruntime").stdout
    assert f"onnxruntime {line.split()[2]}," in said


def test_a_library_that_is_none_is_bad(doctor, tmp_path):
    (tmp_path / "libonnxruntime.so").write_text("no library")
    done = doctor("--seconds", "0.02", ROBOT_RL_ONNXRUNTIME=str(tmp_path / "libonnxruntime.so"))
    assert done.returncode == 3
    (line,) = (line for line in done.stdout.splitlines() if line.split()[1] == "onnxruntime")
    assert line.startswith("bad")
    assert str(tmp_path) in line


def test_a_report_that_cannot_be_written_is_refused(doctor, tmp_path):
    done = doctor("--seconds", "0.02", "--report", tmp_path / "nowhere" / "doctor.json")
    assert done.returncode == 2
    assert "cannot be written" in done.stderr
    assert len(done.stderr.splitlines()) == 1


@pytest.mark.parametrize(
    ("soname", "number", "verdict", "said"),
    [
        ("libnvinfer.so.10", 101302, "advice", "10.13.2, but robot-rl-infer was built without it"),
        ("libnvinfer.so.11", 110003, "advice", "11.0.3, but robot-rl-infer was built without it"),
        ("libnvinfer.so", 8601, "advice", "8.6.1; 10 or 11 is needed"),
    ],
)
def test_the_version_of_tensorrt_and_cuda_is_asked_of_the_libraries(doctor, tmp_path, soname, number, verdict, said):
    compiler = shutil.which("gcc") or shutil.which("cc")
    if compiler is None:
        pytest.skip("no C compiler here")
    sources = {
        soname: f"int getInferLibVersion(void) {{ return {number}; }}",
        "libcuda.so.1": "int cuDriverGetVersion(int *version) { *version = 13020; return 0; }",
    }
    for name, text in sources.items():
        (tmp_path / "it.c").write_text(text)
        subprocess.run([compiler, "-shared", "-fPIC", "-o", tmp_path / name, tmp_path / "it.c"], check=True)
    done = doctor("--seconds", "0.02", LD_LIBRARY_PATH=str(tmp_path))
    rows = {line.split()[1]: line for line in done.stdout.splitlines()}
    assert rows["cuda"].endswith("driver for 13.2")
    if "built without" in said and "but" not in rows["tensorrt"]:
        assert rows["tensorrt"].split()[0] == "good"  # this build has TensorRT
    else:
        assert rows["tensorrt"].split()[0] == verdict
        assert said in rows["tensorrt"]
    done = doctor("--seconds", "0.02", "--backend", "tensorrt", LD_LIBRARY_PATH=str(tmp_path))
    assert "bad      tensorrt" in done.stdout or "good     tensorrt" in done.stdout
