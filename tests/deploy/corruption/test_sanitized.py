"""The readers of a bundle's files under the address and undefined-behaviour sanitizers."""

import shutil
import subprocess
from pathlib import Path

import pytest

from tests.deploy.conftest import load

unit = load("unit/deploy/test_precision.py")
written = unit.written
SOURCES = Path(__file__).parents[3] / "deploy_jetson/runtime/src"
PARTS = (
    *(
        "json",
        "json_read",
        "contract",
        "contract_messages",
        "contract_precision",
        "contract_terms",
        "observe",
        "npz",
        "crc32",
        "onnx_check",
        "sha256",
        "golden",
    ),
    *("onnx_operators", "plausible"),
    "error",
)


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("g++") is None, reason="needs g++")
def test_no_damaged_byte_leads_a_reader_astray(tmp_path, toy_bundle, written):
    program = tmp_path / "sanitized"
    flags = ["-std=c++20", "-O1", "-g1", "-fsanitize=address,undefined", "-fno-sanitize=vptr", f"-I{SOURCES}"]
    files = [Path(__file__).parent / "sanitized.cpp", *(SOURCES / f"{part}.cpp" for part in PARTS)]
    command = ["g++", *flags, "-fno-sanitize-recover=all", *map(str, files), "-o", str(program)]
    subprocess.run(command, check=True)
    for bundle in (toy_bundle, *(written(mode)[0] for mode in unit.MODES)):
        result = subprocess.run([program, bundle, "1", "3000"], capture_output=True, text=True, timeout=300)
        assert result.stdout == "clean\n", result.stderr[-3000:]
