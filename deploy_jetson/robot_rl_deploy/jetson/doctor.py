"""Check this machine's suitability for real-time control; doctor.sh runs it. Python's standard library is enough.

One line for each check, with its remedy. Verdicts: `bad`: do not move a robot with it (exit code 3); `advice`: it
works, but could be better; `unknown`: this machine does not report it.
"""

import argparse
import array
import ctypes
import fcntl
import json
import os
import re
import socket
import struct
import sys
import threading
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

ENOUGH_LOCKED = 512 << 20  # [byte], more than the runtime maps with ONNX Runtime
HEAT_MARGIN = 10.0  # [C] below the temperature at which the machine slows down
SLOW_IDLE = 100  # [us] to leave an idle state
SLOW_COALESCING = 50  # [us]
WRITER_PERIOD = 0.002  # [s]
LATE_ADVICE = 0.1  # of the writer's period, at the 99th percentile
CAP_IPC_LOCK, CAP_SYS_NICE = 14, 23  # bits of CapEff, see capabilities(7)
SIOCETHTOOL, ETHTOOL_GCOALESCE = 0x8946, 0x0E
JETPACK_7 = 38  # release of Jetson Linux
NO_TEMPERATURE, NO_MARGIN = -273.0, 1e9
SLOW_CLOCKS = ("hpet", "acpi_pm", "jiffies")
GOOD, ADVICE, BAD, UNKNOWN = "good", "advice", "bad", "unknown"


class Check(NamedTuple):
    """One finding; `remedy` is the action to take, empty if none is needed."""

    name: str
    verdict: str
    found: str
    remedy: str = ""


Finding = tuple[str, str, str]
"""Verdict, finding, and remedy."""


def read_small(path: Path) -> str | None:
    """Return the content of a small file in ASCII without white space at its ends; None if it cannot be read."""
    try:
        with path.open("rb") as file:
            return re.sub(r"[^\0-\x7f]", "?", file.read(65536).strip(b"\0 \n\t").decode("latin-1"))
    except OSError:
        return None


def read_number(path: Path) -> int | None:
    """Return the integer in a file; None if there is none."""
    text = read_small(path)
    return int(text) if text and re.fullmatch(r"-?[0-9]{1,18}", text) else None


def entries(folder: Path, prefix: str = "") -> list[Path]:
    """Return the sorted paths of a folder with names that begin with `prefix`; none if the folder does not exist."""
    return sorted(folder.glob(f"{prefix}*")) if folder.is_dir() else []


def parse_cpus(text: str) -> set[int]:
    """Read the kernel's notation of a set of processors, such as "0,2-4"."""
    cpus: set[int] = set()
    for part in text.split(","):
        ends = re.fullmatch(r"([0-9]{1,9})(?:-([0-9]{1,9}))?", part)
        if ends is None:
            return cpus
        cpus |= set(range(int(ends[1]), min(int(ends[2] or ends[1]) + 1, 4096)))
    return cpus


def format_cpus(cpus: Iterable[int]) -> str:
    """Write a set of processors in the kernel's notation."""
    runs: list[list[int]] = []
    for cpu in sorted(cpus):
        if runs and cpu == runs[-1][-1] + 1:
            runs[-1].append(cpu)
        else:
            runs.append([cpu])
    return ",".join(str(run[0]) if len(run) == 1 else f"{run[0]}-{run[-1]}" for run in runs)


def _leading(text: str) -> int:
    """Return the number that a text begins with, else 0."""
    found = re.match(r"[0-9]{1,18}", text)
    return int(found[0]) if found else 0


def _field(path: Path, name: str) -> str | None:
    """Return the value of a line "Name:   value" of a file under /proc; None if the line is missing."""
    found = re.search(re.escape(name) + r"[ \t]*([^ \t\n]+)", read_small(path) or "")
    return found[1] if found else None


def _cpu_folders(root: Path) -> dict[int, Path]:
    found = entries(root / "sys/devices/system/cpu", "cpu")
    return {int(path.name[3:]): path for path in found if re.fullmatch(r"cpu[0-9]{1,9}", path.name)}


def _board(_: argparse.Namespace, root: Path) -> Finding:
    model, tegra = read_small(root / "proc/device-tree/model"), read_small(root / "etc/nv_tegra_release")
    if tegra is None:
        return GOOD, model or "no Jetson", ""
    release = tegra[2:].partition(", GCID")[0]  # "# R38 (release), REVISION: 2.1, GCID: ..."
    found = f"{'Jetson' if model is None else model}, Jetson Linux {release}"
    if release.startswith("R") and _leading(release[1:]) >= JETPACK_7:
        return GOOD, found, ""
    return ADVICE, found, "build.sh was written for JetPack 7 (Jetson Linux R38 and later)"


def _kernel(_: argparse.Namespace, root: Path) -> Finding:
    release = read_small(root / "proc/sys/kernel/osrelease") or "?"
    version = read_small(root / "proc/sys/kernel/version") or ""
    if read_number(root / "sys/kernel/realtime") == 1 or "PREEMPT_RT" in version:
        return GOOD, f"{release}, PREEMPT_RT", ""
    found = f"{release}, preemptible, not real-time" if "PREEMPT" in version else f"{release}, not real-time"
    remedy = "install the real-time kernel: on a Jetson the packages nvidia-l4t-rt-kernel*, on Debian linux-image-rt-*"
    return ADVICE, found, remedy


def _isolated_cpus(options: argparse.Namespace, root: Path) -> Finding:
    folder = root / "sys/devices/system/cpu"
    isolated = parse_cpus(read_small(folder / "isolated") or "")
    tickless = parse_cpus(read_small(folder / "nohz_full") or "")
    count = len(_cpu_folders(root))
    if not isolated and count < 4:
        return UNKNOWN, f"none of {count} processors, too few to spare two", ""
    if not isolated:
        pair = format_cpus({count - 2, count - 1})
        return ADVICE, "none", f"boot with isolcpus=managed_irq,domain,{pair} nohz_full={pair} rcu_nocbs={pair}"
    found = f"{format_cpus(isolated)}, tickless {format_cpus(tickless) or 'none'}"
    for option, cpu in (("--cpu-writer", options.cpu_writer), ("--cpu-policy", options.cpu_policy)):
        if cpu < 0:
            return ADVICE, found, f"nothing runs there unless assigned: give {option} one of them"
        if cpu not in isolated:
            return ADVICE, found, f"{option} {cpu} is not among them"
    return GOOD, found, ""


def _fifo_share(_: argparse.Namespace, root: Path) -> Finding:
    runtime = read_number(root / "proc/sys/kernel/sched_rt_runtime_us")
    period = read_number(root / "proc/sys/kernel/sched_rt_period_us")
    if runtime is None or period is None or period <= 0:
        return UNKNOWN, "the kernel does not report it", ""
    if runtime < 0:
        return GOOD, "FIFO threads are never throttled", ""
    share = 100 * runtime / period
    found = f"FIFO threads may have {share:.0f} % of a processor"
    if share >= 90:
        return GOOD, f"{found}; those of the runtime sleep nearly always", ""
    return ADVICE, found, "sysctl kernel.sched_rt_runtime_us=950000"


def _slowing_at(zone: Path) -> float:
    """Return the lowest temperature [C] at which a thermal zone slows the machine down or stops it."""
    trips = [path for path in entries(zone, "trip_point_") if path.name.endswith("_type")]
    active = [path for path in trips if read_small(path) in ("passive", "hot", "critical")]
    limits = [read_number(zone / path.name.replace("_type", "_temp")) or 0 for path in active]
    return min((limit / 1000 for limit in limits if limit > 0), default=NO_MARGIN)


def _heat(_: argparse.Namespace, root: Path) -> Finding:
    where, margin, hottest = "", NO_MARGIN, NO_TEMPERATURE
    for zone in entries(root / "sys/class/thermal", "thermal_zone"):
        value = read_number(zone / "temp")
        if value is None:
            continue
        hottest = max(hottest, value / 1000)
        limit = _slowing_at(zone)
        if limit < NO_MARGIN and limit - value / 1000 < margin:
            margin, where = limit - value / 1000, read_small(zone / "type") or zone.name
    if hottest <= NO_TEMPERATURE:
        return UNKNOWN, "no thermal zone reports a temperature", ""
    found = f"hottest {hottest:.0f} C"
    if not where:
        return GOOD, found, ""
    found += f"; '{where}' is {margin:.0f} C below its throttling limit"
    if margin <= 0:
        return BAD, found, "it is slowed down by heat: cool it, check the fan and the air flow"
    if margin < HEAT_MARGIN:
        return ADVICE, found, "give it more air before a long run"
    return GOOD, found, ""


def _throttling(_: argparse.Namespace, root: Path) -> Finding:
    monitors = entries(root / "sys/class/hwmon", "hwmon")
    counters = [path for monitor in monitors for path in entries(monitor, "oc") if path.name.endswith("_event_cnt")]
    events = [f"{path.name.partition('_')[0]}: {read_number(path)}" for path in counters if read_number(path)]
    if events:
        found = f"over-current events since boot ({', '.join(events)})"
        remedy = (
            "the supply is too weak or the power mode too high; the clocks may stay low until the power is switched"
        )
        return BAD, found, f"{remedy} off and on"
    folders = _cpu_folders(root).values()
    counts = [read_number(folder / "thermal_throttle/core_throttle_count") for folder in folders]
    hot = sum(count or 0 for count in counts)
    if hot:
        return ADVICE, f"slowed down by heat {hot} times since boot", "cool it"
    if not monitors and not any(count is not None for count in counts):
        return UNKNOWN, "this machine does not count throttling", ""
    return GOOD, "no event since boot", ""


def _governor(_: argparse.Namespace, root: Path) -> Finding:
    read = {cpu: read_small(path / "cpufreq/scaling_governor") for cpu, path in _cpu_folders(root).items()}
    governors = {cpu: governor for cpu, governor in read.items() if governor is not None}
    other = {cpu: governor for cpu, governor in governors.items() if governor != "performance"}
    if not governors:
        return UNKNOWN, "no frequency scaling is visible, as in a virtual machine", ""
    if not other:
        return GOOD, f"performance on {format_cpus(governors)}", ""
    remedy = "sudo jetson_clocks, or cpupower frequency-set -g performance"
    return ADVICE, f"{list(other.values())[-1]} on {format_cpus(other)}", remedy


def _cpu_clock(_: argparse.Namespace, root: Path) -> Finding:
    slow, capped, worst, reported = set(), set(), 1.0, False
    names = ("cpuinfo_max_freq", "scaling_max_freq", "scaling_cur_freq", "cpuinfo_cur_freq")
    for cpu, folder in _cpu_folders(root).items():
        top, allowed, requested, real = (read_number(folder / "cpufreq" / name) for name in names)
        reported = reported or bool(top and allowed)
        if top is not None and allowed is not None and allowed < top:
            capped.add(cpu)
        if requested is None or real is None or requested <= 0:
            continue
        worst = min(worst, real / requested)
        if real / requested < 0.7:
            slow.add(cpu)
    if not reported:
        return UNKNOWN, "this machine does not report its clocks", ""
    if slow:
        found = f"processors {format_cpus(slow)} run at {100 * worst:.0f} % of the requested clock"
        remedy = "the power management holds them back: look at throttling and the supply, switch the power off and on"
        return BAD, found, remedy
    if capped:
        found = f"processors {format_cpus(capped)} are kept below their highest clock"
        return ADVICE, found, "sudo nvpmodel -m 0"
    return GOOD, "the highest clock is allowed", ""


def _idle_states(_: argparse.Namespace, root: Path) -> Finding:
    states = entries(root / "sys/devices/system/cpu/cpu0/cpuidle", "state")
    if not states:
        return GOOD, "none is used by this kernel", ""
    used = [state for state in states if not read_number(state / "disable")]
    latencies = [(max(read_number(state / "latency") or 0, 0), read_small(state / "name") or "") for state in used]
    slowest, name = max(latencies, default=(0, ""))
    found = f"deepest is '{name}', {slowest} us to leave"
    if slowest <= SLOW_IDLE:
        return GOOD, found, ""
    return ADVICE, found, f"sudo jetson_clocks, or cpupower idle-set -D {SLOW_IDLE}"


def _gpu_clock(_: argparse.Namespace, root: Path) -> Finding:
    for device in entries(root / "sys/class/devfreq"):
        if "gpu" not in device.name or "nvd" in device.name:
            continue
        now, low, high = (read_number(device / f"{name}_freq") for name in ("cur", "min", "max"))
        if now is None or low is None or high is None:
            continue
        found = f"{device.name} at {now / 1e6:.0f} MHz of {high / 1e6:.0f}"
        if low >= high:
            return GOOD, f"{found}, locked", ""
        return ADVICE, f"{found}, may be lowered", "sudo jetson_clocks locks it, where TensorRT runs the policy"
    return UNKNOWN, "no GPU of a Jetson", ""


def _power_mode(_: argparse.Namespace, root: Path) -> Finding:
    status = read_small(root / "var/lib/nvpmodel/status")
    if status is None or "pmode:" not in status:
        return UNKNOWN, "no nvpmodel" if status is None else status, ""
    number = _leading(status.partition("pmode:")[2])
    if number == 0:
        return GOOD, "mode 0, the highest", ""
    return ADVICE, f"mode {number}", "sudo nvpmodel -m 0, where supply and cooling allow it"


def _clock_source(_: argparse.Namespace, root: Path) -> Finding:
    name = read_small(root / "sys/devices/system/clocksource/clocksource0/current_clocksource")
    if name is None:
        return UNKNOWN, "the kernel does not report it", ""
    if name not in SLOW_CLOCKS:
        return GOOD, name, ""
    remedy = "look into the kernel's log for the reason why the fast one was not used"
    return ADVICE, f"{name}, which is slow to read", remedy


def _capable(root: Path, bit: int) -> bool:
    mask = _field(root / "proc/self/status", "CapEff:")
    return bool(mask and re.fullmatch(r"[0-9a-fA-F]{1,16}", mask) and int(mask, 16) >> bit & 1)


def _rtprio(options: argparse.Namespace, root: Path) -> Finding:
    limit = _field(root / "proc/self/limits", "Max realtime priority")
    wanted = max(options.fifo_writer, options.fifo_policy)
    if limit is None:
        return UNKNOWN, "the kernel does not report it", ""
    if _capable(root, CAP_SYS_NICE):
        return GOOD, "any priority, by capability", ""
    if _leading(limit) >= wanted:
        return GOOD, limit, ""
    return BAD, f"{limit}, {wanted} is needed", "LimitRTPRIO=95 in the unit, or 'rtprio 95' in /etc/security/limits.d"


def _memlock(_: argparse.Namespace, root: Path) -> Finding:
    limit = _field(root / "proc/self/limits", "Max locked memory")
    if limit is None:
        return UNKNOWN, "the kernel does not report it", ""
    if _capable(root, CAP_IPC_LOCK):
        return GOOD, "any amount, by capability", ""
    if limit == "unlimited":
        return GOOD, limit, ""
    found = f"{_leading(limit) >> 20} MiB"
    if _leading(limit) >= ENOUGH_LOCKED:
        return GOOD, found, ""
    return BAD, found, "LimitMEMLOCK=infinity in the unit, or 'memlock unlimited' in /etc/security/limits.d"


FILE_CHECKS = (_board, _kernel, _isolated_cpus, _fifo_share, _heat, _throttling, _governor, _cpu_clock, _idle_states)
FILE_CHECKS += (_gpu_clock, _power_mode, _clock_source, _rtprio, _memlock)


def check_files(options: argparse.Namespace, root: Path = Path("/")) -> list[Check]:
    """Check the files under /proc, /sys, /etc and /var; `root` is the prefix of every path."""
    return [Check(check.__name__[1:], *check(options, root)) for check in FILE_CHECKS]


def _set_fifo(priority: int) -> bool:
    """Give this thread real-time priority, if permitted."""
    try:
        os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(priority))
    except OSError:
        return False
    return True


def _fifo(options: argparse.Namespace) -> Check:
    priority, permitted = max(1, options.fifo_writer, options.fifo_policy), []
    thread = threading.Thread(target=lambda: permitted.append(_set_fifo(priority)))
    thread.start()
    thread.join()
    if permitted == [True]:
        return Check("fifo", GOOD, f"SCHED_FIFO at {priority} was granted")
    return Check(
        "fifo", BAD, f"SCHED_FIFO at {priority} was refused", "see rtprio; in a container give it CAP_SYS_NICE"
    )


def _newest(folder: Path) -> list[str]:
    """Return the newest libonnxruntime.so* of a folder; 1.9.0 is older than 1.31.1."""
    found = sorted(entries(folder, "libonnxruntime.so"), key=lambda path: [*map(int, re.findall("[0-9]+", path.name))])
    return [str(path) for path in found[-1:]]


def _load(names: Iterable[str]) -> Any:
    """Load the first of these libraries that can be loaded; raises OSError with the reason why the last cannot."""
    error = OSError("there is no such library")
    for name in names:
        try:
            return ctypes.CDLL(name)
        except OSError as raised:
            error = raised
    raise error


def _onnxruntime(options: argparse.Namespace) -> Check:
    """Find the library as robot-rl-infer finds it."""
    os.environ["ORT_DISABLE_TELEMETRY"] = "1"
    named = options.onnxruntime or os.environ.get("ROBOT_RL_ONNXRUNTIME")
    places = (".", "../lib", "../onnxruntime/capi", "../../onnxruntime/capi")
    found = [path for place in places for path in _newest(options.bin / place)]
    found += ["libonnxruntime.so.1", "libonnxruntime.so"]
    if named:
        found = _newest(Path(named)) if Path(named).is_dir() else [named]
    try:
        base_of = _load(found).OrtGetApiBase
        base_of.restype = ctypes.POINTER(ctypes.c_void_p)
        get_api, version_of = base_of()[:2]
        version = ctypes.CFUNCTYPE(ctypes.c_char_p)(version_of)().decode()
        if not ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_uint32)(get_api)(17):
            return Check("onnxruntime", BAD, version, "it is too old; 1.17 or newer is needed")
    except (OSError, AttributeError) as error:
        where = f"{named}: cannot be loaded ({error})" if named else "ONNX Runtime was not found"
        return Check("onnxruntime", BAD, where, "name its libonnxruntime.so* with --onnxruntime")
    return Check("onnxruntime", GOOD, version)


def _tensorrt(options: argparse.Namespace) -> Check:
    wanted = options.backend == "tensorrt"
    try:
        number = _load(["libnvinfer.so.11", "libnvinfer.so.10", "libnvinfer.so"]).getInferLibVersion()
    except (OSError, AttributeError):
        remedy = "install JetPack's TensorRT" if wanted else ""
        return Check("tensorrt", BAD if wanted else UNKNOWN, "no libnvinfer", remedy)
    large, small = (1000, 10) if number < 10000 else (10000, 100)
    found = f"{number // large}.{number // 100 % small}.{number % 100}"
    if number // large < 10:
        return Check("tensorrt", BAD if wanted else ADVICE, found, "10 or 11 is needed; ONNX Runtime is used")
    binary = options.bin / "robot-rl-infer"
    if binary.is_file() and b"\0libnvinfer.so" in binary.read_bytes():  # it is linked
        return Check("tensorrt", GOOD, found)
    found += f", but {binary.name} was built without it"
    remedy = "install libnvinfer-headers-dev or JetPack's, and build again"
    return Check("tensorrt", BAD if wanted else ADVICE, found, remedy)


def _cuda(_: argparse.Namespace) -> Check:
    version = ctypes.c_int(0)
    try:
        failed = _load(["libcuda.so.1"]).cuDriverGetVersion(ctypes.byref(version))
    except (OSError, AttributeError):
        failed = 1
    if failed:
        return Check("cuda", UNKNOWN, "no driver")
    return Check("cuda", GOOD, f"driver for {version.value // 1000}.{version.value % 1000 // 10}")


def _coalescing(card: str) -> Check:
    name, settings = f"coalescing {card}", array.array("I", [ETHTOOL_GCOALESCE] + 22 * [0])
    request = struct.pack("16sP16x", card.encode()[:15], settings.buffer_info()[0])
    try:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as handle:
            fcntl.ioctl(handle, SIOCETHTOOL, request)
    except OSError:
        return Check(name, UNKNOWN, "the driver does not report it")
    waits, adaptive = settings[1], settings[10] != 0
    found = f"a packet may wait {waits} us" + (" or more, adaptive" if adaptive else "")
    if not adaptive and waits <= SLOW_COALESCING:
        return Check(name, GOOD, found)
    remedy = f"if the robot is connected to this card: sudo ethtool -C {card} adaptive-rx off rx-usecs 0"
    return Check(name, ADVICE, found, remedy)


def _network() -> list[Check]:
    real = [
        card.name
        for card in entries(Path("/sys/class/net"))
        if (card / "device").exists() and not (card / "wireless").exists()
        if read_number(card / "type") == 1 and read_small(card / "operstate") != "down"
    ]
    return [_coalescing(card) for card in real] or [Check("coalescing", UNKNOWN, "no wired network card")]


def _lateness(options: argparse.Namespace) -> list[float]:
    """Measure how late a thread wakes up [us] at each of the writer's ticks; with FIFO if permitted. Sorted."""
    late: list[float] = []

    def wake() -> None:
        _set_fifo(max(1, options.fifo_writer))
        if options.cpu_writer >= 0:
            os.sched_setaffinity(0, {options.cpu_writer})
        due = time.monotonic()
        for _ in range(max(10, int(options.seconds / WRITER_PERIOD))):
            due += WRITER_PERIOD
            time.sleep(max(0.0, due - time.monotonic()))
            late.append((time.monotonic() - due) * 1e6)

    thread = threading.Thread(target=wake)
    thread.start()
    thread.join()
    return sorted(late)


def _wake_up(options: argparse.Namespace) -> Check:
    late = _lateness(options)
    if not late:
        return Check(
            "wake_up", BAD, f"--cpu-writer {options.cpu_writer} cannot be used", "name a processor that is there"
        )
    p99 = late[len(late) * 99 // 100]
    found = f"late by {late[len(late) // 2]:.0f} us in the median, {p99:.0f} at 99 %, {late[-1]:.0f} at most"
    if late[-1] >= WRITER_PERIOD * 1e6:
        remedy = "a whole tick was missed: isolate processors, see the lines above"
        return Check("wake_up", ADVICE, found, remedy)
    if p99 >= LATE_ADVICE * WRITER_PERIOD * 1e6:
        return Check("wake_up", ADVICE, found, "see the lines above")
    return Check("wake_up", GOOD, found)


def check_live(options: argparse.Namespace) -> list[Check]:
    """Check by experiment: real-time priority, libraries, network cards, and how late this machine wakes up."""
    libraries = [check(options) for check in (_fifo, _onnxruntime, _tensorrt, _cuda)]
    return [*libraries, *_network(), _wake_up(options)]


def text_of(checks: list[Check]) -> str:
    """Return the rows as they are printed, one line each, and a last line with the result."""
    lines = []
    for check in checks:
        line = f"{check.verdict:8} {check.name[:32]:16} {check.found}" + (f"; {check.remedy}" if check.remedy else "")
        lines.append(re.sub(r"[\0-\x1f\x7f]", " ", line))
    bad, advice = (sum(check.verdict == verdict for check in checks) for verdict in (BAD, ADVICE))
    last = f"{bad} bad: fix them before a robot moves" if bad else f"nothing bad, {advice} could be better"
    return "\n".join([*lines, f"doctor: {last if bad or advice else 'all good'}", ""])


def make_options(words: list[str] | None = None) -> argparse.Namespace:
    """Read the command line; those of robot-rl-infer have the same names there."""
    parser = argparse.ArgumentParser(prog="doctor.sh", description="Check whether this machine is suitable.")
    parser.add_argument("--seconds", type=float, default=1.0, help="how long to measure how late this machine wakes up")
    parser.add_argument("--report", type=Path, help="write the result as JSON")
    parser.add_argument("--bin", type=Path, default=Path(__file__).parent, help="folder of robot-rl-infer")
    parser.add_argument("--backend", choices=("auto", "onnxruntime", "tensorrt"), default="auto")
    parser.add_argument("--onnxruntime", help="libonnxruntime.so, or its folder")
    for name, default in (("fifo-writer", 80), ("fifo-policy", 70), ("cpu-writer", -1), ("cpu-policy", -1)):
        parser.add_argument(f"--{name}", type=int, default=default)
    return parser.parse_args(words)


def main() -> int:
    """Print the checks, write the report, return the exit code."""
    options = make_options()
    checks = [*check_files(options), *check_live(options)]
    sys.stdout.write(text_of(checks))
    if options.report:
        try:
            options.report.write_text(json.dumps({"checks": [check._asdict() for check in checks]}, indent=1) + "\n")
        except OSError as error:
            sys.stderr.write(f"doctor: --report={options.report}: cannot be written ({error.strerror})\n")
            return 2
    return 3 if any(check.verdict == BAD for check in checks) else 0


if __name__ == "__main__":
    sys.exit(main())
