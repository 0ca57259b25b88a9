"""robot-rl-infer --bench: what it reports, and what it refuses."""

import json


def test_bench_reports_a_paced_network(small, bench, tmp_path):
    report = tmp_path / "report.json"
    found = bench("--bundle", small, "--report", report)
    assert json.loads(report.read_text()) == found
    assert (found["runs"], found["failed"], found["period_s"]) == (200, 0, 0.002)
    assert (found["observation_size"], found["action_size"], found["state_size"]) == (20, 3, 0)
    times = found["inference_us"]
    assert 0 < times["p50"] <= times["p99"] <= times["p99.9"] <= times["max"]
    assert found["backend"].startswith("onnxruntime")
    assert "golden error" in found["why"]
    assert found["model_bytes"] == (small / "policy.onnx").stat().st_size


def test_bench_warms_the_network_unless_told_not_to(small, bench):
    assert bench("--bundle", small)["rehearsal_us"] > 0
    assert bench("--bundle", small, "--no-rehearsal")["rehearsal_us"] == 0


def test_bench_runs_a_policy_with_a_memory(remembering, bench):
    assert bench("--bundle", remembering)["state_size"] == 8


def test_bench_of_a_damaged_bundle_is_refused(small, infer, tmp_path):
    bundle = tmp_path / "policy"
    bundle.mkdir()
    for path in small.iterdir():
        (bundle / path.name).write_bytes(path.read_bytes())
    (bundle / "policy.onnx").write_bytes(b"something else")
    code, output, errors = infer("--bench", "--bundle", bundle)
    assert (code, output) == (3, "")
    assert "policy.onnx does not have the hash" in errors


def test_report_that_cannot_be_written_is_refused(small, infer):
    code, _, errors = infer("--bench", "--seconds", "0.1", "--bundle", small, "--report", "/nowhere/report.json")
    assert code == 2
    assert "--report=/nowhere/report.json: cannot be written" in errors
