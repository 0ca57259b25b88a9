"""The readers of a bundle's files under the address and undefined-behaviour sanitizers."""

import os
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.deploy.conftest import load

unit = load("unit/deploy/test_precision.py")
written = unit.written
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


@pytest.mark.long
def test_no_damaged_byte_leads_a_reader_astray(sanitized, toy_bundle, written):
    program = sanitized(Path(__file__).parent / "sanitized.cpp", PARTS)
    bundles = (toy_bundle, *(written(mode)[0] for mode in unit.MODES))

    def read(bundle):
        return subprocess.run([program, bundle, "1", "3000"], capture_output=True, text=True, timeout=300, check=False)

    with ThreadPoolExecutor(os.cpu_count()) as pool:
        for result in pool.map(read, bundles):
            assert result.stdout == "clean\n", result.stderr[-3000:]
