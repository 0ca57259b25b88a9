"""What one node is: versions, hardware, limits, disks, variables, network. Read on the node, compared elsewhere."""

from __future__ import annotations

import contextlib
import os
import platform
import re
import resource
import shutil
import socket
import struct
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from robot_rl.cluster.manifests.processes import FIRST_PORT, PORTS
from robot_rl.machine import count_cores, cpu_name, git_state, package_versions

VARIABLES = re.compile(
    r"(NCCL|GLOO|TORCH_NCCL|UCX|TORCH_DISTRIBUTED)_\w+|MASTER_(ADDR|PORT)|OMP_NUM_THREADS"
    r"|CUDA_(VISIBLE_DEVICES|LAUNCH_BLOCKING)"
)
VECTORS = re.compile(r"avx|amx|fma|f16c|bmi|sve|asimd|bf16|i8mm")
"""Instruction sets that compilers choose code by, of x86 and Arm."""
SHM = "/dev/shm"
SIOCGIFADDR = 0x8915
"""Linux's request for the IPv4 address of an interface."""


@dataclass(kw_only=True, slots=True)
class NodeFacts:
    """A node.

    Attributes:
        name: The node's name, by which findings name it.
        versions: Of Python and the packages that a run depends on.
        git: The commit of the sources, and whether they were changed; empty without a checkout.
        kernel: The release of its operating system's kernel.
        driver: The version of NVIDIA's kernel module; "" without one.
        cuda: The CUDA version that torch was built for; "" for a build without.
        gpus: Names of the GPUs that torch sees.
        cpu: Model of its processor.
        flags: Instruction sets of its processor by which code is compiled.
        cores: Cores that this process may use.
        disks: Free bytes by place: "root", "cache" and "/dev/shm"; None if it does not exist.
        limits: Soft limits "nofile" and "memlock"; None for no limit.
        variables: Environment variables that concern NCCL, Gloo, CUDA and where processes meet.
        interfaces: Network interfaces and their IPv4 address; "" without one.
        name_address: The address that the machine's own name leads to; "" for none.
        taken_ports: Ports of the range in which processes meet that cannot be bound.
        master_port: Whether MASTER_PORT can be bound; None if it is not set.
        client_ports: First and last port that the kernel gives to connections.
        root_error: Why files cannot be written to the root; "" if they can.
        sees_token: Whether the file that the submitter wrote below the root is there; None if none was written.
        meets: "" if the node reached the first one at their port, else why not; None if it was not tried.
    """

    name: str
    versions: dict[str, str] = field(default_factory=dict)
    git: dict[str, Any] = field(default_factory=dict)
    kernel: str = ""
    driver: str = ""
    cuda: str = ""
    gpus: list[str] = field(default_factory=list)
    cpu: str = ""
    flags: list[str] = field(default_factory=list)
    cores: int = 0
    disks: dict[str, int | None] = field(default_factory=dict)
    limits: dict[str, int | None] = field(default_factory=dict)
    variables: dict[str, str] = field(default_factory=dict)
    interfaces: dict[str, str] = field(default_factory=dict)
    name_address: str = ""
    taken_ports: list[int] = field(default_factory=list)
    master_port: bool | None = None
    client_ports: list[int] = field(default_factory=list)
    root_error: str = ""
    sees_token: bool | None = None
    meets: str | None = None


def read_facts(root: Path, environ: Mapping[str, str] = os.environ) -> NodeFacts:
    """Return the facts of this machine; a root that is missing is not created."""
    import torch

    port = environ.get("MASTER_PORT", "")
    cache = Path(environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache"))
    return NodeFacts(
        name=environ.get("SLURMD_NODENAME") or socket.gethostname(),
        versions=package_versions(),
        git=git_state(),
        kernel=platform.release(),
        driver=_driver(),
        cuda=torch.version.cuda or "",
        gpus=[torch.cuda.get_device_name(k) for k in range(torch.cuda.device_count())],
        cpu=cpu_name(),
        flags=_instruction_sets(),
        cores=count_cores(),
        disks={"root": _free(root), "cache": _free(cache), SHM: _free(Path(SHM)) if Path(SHM).is_dir() else None},
        limits={"nofile": _limit(resource.RLIMIT_NOFILE), "memlock": _limit(resource.RLIMIT_MEMLOCK)},
        variables={name: value for name, value in sorted(environ.items()) if VARIABLES.fullmatch(name)},
        interfaces={name: _address(name) for _, name in socket.if_nameindex()},
        name_address=_name_address(),
        taken_ports=[port for port in range(FIRST_PORT, FIRST_PORT + PORTS) if not can_bind(port)],
        master_port=can_bind(int(port)) if port.isdecimal() and int(port) < 65536 else None,
        client_ports=_client_ports(),
    )


def can_bind(port: int) -> bool:
    """Return whether a server could listen on a TCP port of this machine."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("", port))
        except OSError:
            return False
        return True


def _instruction_sets() -> list[str]:
    with contextlib.suppress(OSError):
        match = re.search(r"^(?:flags|Features)\s*:(.*)", Path("/proc/cpuinfo").read_text(), re.MULTILINE)
        return sorted(word for word in match[1].split() if VECTORS.match(word)) if match else []
    return []


def _driver() -> str:
    with contextlib.suppress(OSError):
        match = re.search(r"Kernel Module\D*([\d.]+)", Path("/proc/driver/nvidia/version").read_text())
        return match[1] if match else ""
    return ""


def _free(place: Path) -> int | None:
    """Return the bytes that a user may still write to a place, or could after it is created; None if it is gone."""
    there = next((above for above in (place, *place.parents) if above.is_dir()), None)
    return None if there is None else shutil.disk_usage(there).free


def _limit(kind: int) -> int | None:
    soft, _ = resource.getrlimit(kind)
    return None if soft == resource.RLIM_INFINITY else soft


def _address(interface: str) -> str:
    """Return the IPv4 address of an interface; "" without one."""
    import fcntl

    with contextlib.suppress(OSError), socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        answer = fcntl.ioctl(probe.fileno(), SIOCGIFADDR, struct.pack("256s", interface.encode()[:15]))
        return socket.inet_ntoa(answer[20:24])
    return ""


def _name_address() -> str:
    with contextlib.suppress(OSError):
        return socket.gethostbyname(socket.gethostname())
    return ""


def _client_ports() -> list[int]:
    with contextlib.suppress(OSError, ValueError):
        return [int(word) for word in Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()]
    return []
