"""The speed of precisions: each is measured against fp32."""

import json

import precision_speed
import pytest

from robot_rl.errors import UserError


class Here(precision_speed.Trainee):
    """A worker in this process, whose times are known."""

    def __enter__(self):
        return self

    def __exit__(self, *_):
        pass

    def measure(self, what):
        getattr(self, what)()
        return {"fp32": 2.0, "bf16": 1.0}[self.cfg.precision.mode]


def test_precisions_are_measured_against_fp32(monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(precision_speed, "Worker", Here)
    monkeypatch.setattr(precision_speed, "ACTING", 8)
    out = tmp_path / "b.json"
    words = ["modes=bf16", "hidden=[8,8]", "num_envs=8", "num_steps=4", "repeats=2", "runtime=false", f"out={out}"]
    precision_speed.main(words)
    rows = {(row["what"], row["mode"]): row for row in json.loads(out.read_text())["rows"]}
    assert set(rows) == {(what, mode) for what in ("update", "acting") for mode in ("fp32", "bf16")}
    assert [rows["update", mode]["ratio"] for mode in ("fp32", "bf16")] == [1.0, 2.0]
    assert rows["acting", "bf16"]["required"] == 1.3
    assert "fp32 / this" in capsys.readouterr().out


def test_fp32_is_not_compared_with_itself():
    with pytest.raises(UserError, match="give bf16, fp8 or int8"):
        precision_speed.main(["modes=fp32"])
