"""Decoders and transports under the address and undefined-behaviour sanitizers."""

import os
import subprocess
import uuid
from pathlib import Path

import pytest

PARTS = (
    *("address", "contract", "contract_messages", "contract_precision", "contract_terms", "crc32", "error"),
    *("frame_transport", "json", "json_read", "plausible", "protocol", "receiver", "robot_end", "rt", "shm"),
    *("transport", "types", "udp", "unavailable", "unitree"),
)


@pytest.mark.long
def test_no_read_or_write_goes_astray(sanitized, tmp_path, contract, port):
    program, text = sanitized([Path(__file__).parent / "sanitized.cpp"], PARTS), tmp_path / "contract.json"
    text.write_text(contract)
    addresses = [f"udp:127.0.0.1:{port()}", f"shm:san-{os.getpid()}-{uuid.uuid4().hex[:6]}"]
    result = subprocess.run([str(program), str(text), *addresses], capture_output=True, text=True, timeout=300)
    assert result.stdout == "clean\n", result.stderr[-3000:]
