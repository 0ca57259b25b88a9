"""robot-rl preflight on this machine."""

import json

import pytest


@pytest.fixture(autouse=True)
def variables(monkeypatch):
    """None of the variables that it looks at."""
    for name in ("NCCL_P2P_DISABLE", "MASTER_PORT", "NCCL_SOCKET_IFNAME", "GLOO_SOCKET_IFNAME"):
        monkeypatch.delenv(name, raising=False)


def table(out):
    rows = [[cell.strip() for cell in line.strip("│\n").split("│")] for line in out.splitlines() if "│" in line]
    return {row[0]: row[1:] for row in rows if row[0]}


def test_this_machine(run, in_tmp):
    code, out, err = run("preflight", "root=new/runs")
    rows = table(out)
    assert {status for status, *_ in rows.values()} <= {"ok", "warn", "fail"}
    assert code == int(any(status == "fail" for status, *_ in rows.values()))
    assert err == ""
    assert rows["versions"][0] == rows["shared root"][0] == rows["permissions"][0] == "ok"
    assert out.splitlines()[-1].startswith(f"{len(rows)} checks: ")
    assert list(in_tmp.iterdir()) == []


def test_what_fails_is_counted_and_is_the_exit_code(run, in_tmp, monkeypatch):
    (in_tmp / "runs").touch()
    monkeypatch.setenv("NCCL_P2P_DISABLE", "1")
    monkeypatch.setenv("GLOO_SOCKET_IFNAME", "nosuch0")
    code, out, _ = run("preflight")
    rows = table(out)
    assert code == 1
    assert {name for name, row in rows.items() if row[0] == "fail"} >= {"shared root", "permissions", "interfaces"}
    assert rows["variables"][0] == "warn"
    assert "NCCL_P2P_DISABLE=1" in rows["variables"][1]


def test_a_request_that_the_launcher_refuses(run, in_tmp):
    code, out, _ = run("preflight", "launcher=torchrun", "launcher.cpus=4000")
    assert code == 1
    assert table(out)["request"][0] == "fail"


def test_the_facts_as_json(run, in_tmp):
    code, out, _ = run("preflight", "probe=true")
    facts = json.loads(out)
    assert code == 0
    assert {"versions", "gpus", "interfaces", "disks", "variables", "limits"} <= facts.keys()
    assert facts["root_error"] == ""


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (["launcher=slrum"], "slrum"),
        (["launcher=slurm", "launcher.nodes=0"], "launcher.nodes=0: must be in [1, 4096]"),
        (["launcher=local", "launcher.nodes=2"], "does not affect launcher=local"),
        (["probe=true", "token=../x"], "token=../x: must be of letters and digits"),
        (["token=abc"], "token=abc: is for probe=true"),
        (["nodes=2"], "unknown key 'nodes'"),
    ],
)
def test_refusals(run, in_tmp, words, line):
    code, out, err = run("preflight", *words)
    assert (code, out, len(err.splitlines())) == (2, "", 1)
    assert line in err
