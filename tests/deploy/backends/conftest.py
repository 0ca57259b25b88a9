"""Bundles of a made-up robot, and the binary that runs them."""

import json
import os
import subprocess

import numpy as np
import pytest
import robot_rl_runtime as rt
from robot_rl_deploy.synthetic import write_synthetic_bundle


@pytest.fixture(scope="session")
def small(tmp_path_factory):
    """A bundle of three joints and a layer of 16."""
    out = tmp_path_factory.mktemp("small") / "policy"
    write_synthetic_bundle(out, joints=3, hidden=(16,))
    return out


@pytest.fixture(scope="session")
def remembering(tmp_path_factory):
    """The same with a GRU of 8."""
    out = tmp_path_factory.mktemp("remembering") / "policy"
    write_synthetic_bundle(out, joints=3, hidden=(16,), memory=8)
    return out


@pytest.fixture
def load():
    """A function that loads a bundle's network without its golden sequence, and that sequence."""

    def make(bundle, **options):
        contract = options.pop("contract", (bundle / "contract.json").read_text())
        model = options.pop("model", (bundle / "policy.onnx").read_bytes())
        with np.load(bundle / "golden.npz") as golden:
            return rt.load_network(contract, model, **options), dict(golden)

    return make


@pytest.fixture
def infer(tmp_path):
    """A function that runs robot-rl-infer in a home folder of its own and gives exit code, output and errors."""

    def run(*arguments, **environment):
        home = tmp_path / "home"
        home.mkdir(exist_ok=True)
        surroundings = os.environ | {"HOME": str(home)} | environment
        done = subprocess.run(
            [rt.binary(), *map(str, arguments)], env=surroundings, capture_output=True, text=True, timeout=120
        )
        return done.returncode, done.stdout, done.stderr

    return run


@pytest.fixture
def bench(infer):
    """A function that gives what --bench measured."""

    def run(*arguments, **environment):
        code, output, errors = infer("--bench", "--seconds", "0.4", *arguments, **environment)
        assert code == 0, errors
        return json.loads(output)

    return run
