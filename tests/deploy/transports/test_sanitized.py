"""Decoders and transports under the address and undefined-behaviour sanitizers."""

import os
import shutil
import subprocess
import uuid
from pathlib import Path

import pytest

SOURCES = Path(__file__).parents[3] / "deploy_jetson/runtime/src"
PARTS = (
    *(
        "address",
        "contract",
        "contract_messages",
        "contract_precision",
        "contract_terms",
        "crc32",
        "error",
        "frame_transport",
        "json",
        "json_read",
    ),
    *("no_dds", "plausible", "protocol", "receiver", "robot_end", "rt", "shm", "transport", "udp", "unitree"),
)


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("g++") is None, reason="needs g++")
def test_no_read_or_write_goes_astray(tmp_path, contract, port):
    program, text = tmp_path / "sanitized", tmp_path / "contract.json"
    text.write_text(contract)
    flags = ["-std=c++20", "-O1", "-g1", "-fsanitize=address,undefined", "-fno-sanitize-recover=all", f"-I{SOURCES}"]
    files = [Path(__file__).parent / "sanitized.cpp", *(SOURCES / f"{part}.cpp" for part in PARTS)]
    subprocess.run(["g++", *flags, *map(str, files), "-o", str(program), "-lpthread"], check=True)
    addresses = [f"udp:127.0.0.1:{port()}", f"shm:san-{os.getpid()}-{uuid.uuid4().hex[:6]}"]
    result = subprocess.run([str(program), str(text), *addresses], capture_output=True, text=True, timeout=300)
    assert result.stdout == "clean\n", result.stderr[-3000:]
