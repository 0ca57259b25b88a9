"""The command: the same seed gives the same bits, gates read the file, and what is wrong is one line."""

import json
import shutil
from dataclasses import replace

import pytest
import torch
from robot_rl_assets.registry import get_robot
from robot_rl_assets.robot import Dynamics

from robot_rl.certify.certificate import compare, lines, read_certificate, to_text
from robot_rl.certify.certify import CertifyCfg, certify
from robot_rl.certify.page import render_page
from robot_rl.cli.main import main
from robot_rl.errors import UserError
from robot_rl.identify.result import Estimate, Identified
from robot_rl.runs.settings import default_tree, resolve

SIDE = {"value": 0.03, "lo": 0.02, "hi": 0.04, "holds_to_end": False, "limit": "failure"}
PROPERTY = {"unit": "1", "meaning": "a factor", "nominal": 1.0, "searched": [0.1, 8.0], "trained": None, "holds": None}


@pytest.fixture
def content():
    """A certificate that is made by hand."""
    delay = PROPERTY | {"unit": "s", "nominal": 0.0, "trained": [0.0, 0.05], "high": SIDE, "holds": False}
    friction = PROPERTY | {"low": SIDE | {"value": 0.5}, "high": SIDE | {"value": 3.0, "holds_to_end": True}}
    points = {"points": [[0.02, 50, 1.0, 0.1], [0.04, 50, 0.5, 0.3]]}
    row = {"episodes": 50, "success": 1.0, "lo": 0.93, "hi": 1.0, "metric": 0.1, "holds": True}
    speed = {"meaning": "speed", "joint": "knee", "value": 81.0, "unit": "rad/s", "limit": 30.1, "share": 0.5}
    return {
        "format": "robot_rl.certificate",
        "version": 1,
        "model": "00",
        "run": "r",
        "iteration": 3,
        "task": "go2_flat",
        "robot": "unitree_go2",
        "engine": "mujoco",
        "success": 0.9,
        "episodes": 400,
        "seconds": 5.0,
        "goal": {"name": "error", "unit": "m/s", "better": "smaller", "bound": 0.25},
        "nominal": row,
        "parameters": {"delay": delay | points, "dry_friction": friction | points},
        "pairs": [{"names": ["a", "b"], "values": [[1.0], [2.0]], "success": [[0.25]], "episodes": 8}],
        "corner": None,
        "peaks": {"joint_speed": speed | {"holds": False}},
        "engines": {},
        "models": {},
    }


def identified(**values):
    rows = {name: Estimate(nominal=1.0, value=v, lo=v, hi=v, seen=True) for name, v in values.items()}
    delay = Estimate(nominal=0.0, value=0.014, lo=0.01, hi=0.02, seen=True)
    options = {"base": "fixed", "timestep": 0.002, "window_s": 0.5, "logs": [], "errors": {}, "model": {}}
    return Identified(robot="unitree_go2", joints={"FL_calf_joint": rows}, delay=delay, **options)


def test_a_gate_reads_the_delay_that_a_policy_bears(content, tmp_path, capsys):
    path = tmp_path / "certificate.json"
    path.write_text(to_text(content | {"lines": lines(content)}))
    assert read_certificate(path)["parameters"] == content["parameters"]
    assert main(["flow", "gate", str(path), "delay:parameters.delay.high.value>=0.02"]) == 0
    assert main(["flow", "gate", str(path), "delay:parameters.delay.high.lo>=0.025"]) == 1
    assert "is 0.02, must be at least 0.025" in capsys.readouterr().err


def test_lines_and_page_tell_what_failed(content):
    found = lines(content)
    assert "FAILED joint_speed: 81 rad/s of knee, limit 30.1, in 50% of episodes" in found
    assert "FAILED delay: up to 0.03 s (0.02 to 0.04; then failure); trained 0 to 0.05" in found
    assert "dry_friction: down to 0.5 (0.02 to 0.04; then failure) and up to 3 (nothing failed)" in found
    page = render_page(
        content | {"lines": found, "identified": compare(content, identified(), get_robot("unitree_go2"))}
    )
    assert page.count("<figure") == 4  # Success and metric of each property.
    assert ">0.25</td>" in page
    assert "identified delay: 0.014 s is inside" in page


@pytest.mark.long
def test_each_curve_is_over_its_own_values(page, content, tmp_path):
    """The delay is in seconds, the friction ends at its nominal value 1; a reading point belongs to one chart."""
    path = tmp_path / "certificate.html"
    path.write_text(render_page(content | {"lines": lines(content)}))
    page.call("Page.navigate", url=path.as_uri())
    page.wait("document.documentElement.dataset.charts === '4'")
    texts = "[...document.querySelectorAll('.chart')[{}].querySelectorAll('svg text')].map((node) => node.textContent)"
    delay, friction = (page.js(texts.format(k)) for k in (0, 1))
    assert {"0.02", "s"} <= {*delay}
    assert not {"0.02", "s"} & {*friction}
    assert friction[-1] == "1"
    key = "new KeyboardEvent('keydown', {key: 'ArrowLeft', bubbles: true})"
    page.js(f"document.querySelector('.chart .plot').dispatchEvent({key})")
    page.wait("document.querySelector('.chart .read').textContent === '1'")
    assert page.js("document.querySelectorAll('.chart .read')[1].textContent") == "1"
    assert page.js("document.documentElement.dataset.errors") == "0"


def test_an_identified_robot_is_inside_or_outside(content):
    """The damping is compared with kd, 1 N m s/rad: (5 + 1) / (1 + 1); here the certificate is without it."""
    found = compare(content, identified(friction=3.9, damping=5.0), get_robot("unitree_go2"))
    assert found["lines"] == [
        "FAILED identified dry_friction of FL_calf_joint: 3.9 is outside",
        "identified delay: 0.014 s is inside",
    ]
    assert not found["holds"]
    content["parameters"]["damping"] = content["parameters"]["dry_friction"]
    rows = compare(content, identified(damping=5.0), get_robot("unitree_go2"))["rows"]
    assert rows[0] == {"name": "damping", "joint": "FL_calf_joint", "value": 3.0, "inside": True}
    # A policy that was trained for this robot bears a factor on the robot's own friction.
    joints = get_robot("unitree_go2").joints
    own = tuple(replace(joint, dynamics=Dynamics(friction=3.0)) for joint in joints)
    (row, _) = compare(content, identified(friction=3.9), replace(get_robot("unitree_go2"), joints=own))["rows"]
    assert (row["value"], row["inside"]) == (1.3, True)
    with pytest.raises(UserError, match="is of the robot unitree_go2, the policy is for cartpole"):
        compare(content, identified(), get_robot("cartpole"))


def test_the_same_seed_gives_the_same_bits():
    cfg = resolve(default_tree("cartpole", "cpu"))

    def made(seed):
        settings = CertifyCfg(budget=150, worlds=32, seconds=0.4, seed=seed, success=0.5)
        return json.dumps(certify(cfg, lambda obs: 0.3 * torch.ones(len(obs), 1), settings, lambda _: None))

    first = made(3)
    assert made(3) == first
    assert made(4) != first


def test_a_run_is_certified_in_its_bundle(small_run, tmp_path, capsys):
    run = shutil.copytree(small_run, tmp_path / "runs/cartpole" / small_run.name)
    words = ["certify", f"run={run.name}", f"root={tmp_path / 'runs'}", "budget=100", "worlds=32", "seconds=0.2"]
    assert main(words) == 0
    found = read_certificate(run / "policy/certificate.json")
    assert "FAILED nominal" in capsys.readouterr().out  # A run of two iterations swings nothing up.
    assert found["task"] == "cartpole"
    assert (run / "certificate.html").is_file()
    assert f"{found['model']}  policy.onnx" in (run / "policy/SHA256SUMS").read_text()


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (["policy=nothing"], "no such bundle"),
        (["policy=go2_flat", "task=cartpole"], "the policy is for go2_flat"),
        (["policy=go2_team"], "is for several robots"),
        (["policy=go2_flat", "engines=bullet"], "engines=bullet"),
        (["policy=go2_flat", "budget=7"], "budget=7: must be episodes"),
        (["policy=go2_flat", "model=nothing.xml"], "does not exist"),
        (["policy=go2_flat", "identified=nothing.json"], "nothing.json"),
        (["policy=go2_flat", "events.push.xy=1.0"], "out: is missing"),
    ],
)
def test_a_wrong_word_is_one_line(in_tmp, words, line, capsys):
    assert main(["certify", *words]) == 2
    (said,) = capsys.readouterr().err.strip().splitlines()
    assert line in said
    assert list(in_tmp.iterdir()) == []
