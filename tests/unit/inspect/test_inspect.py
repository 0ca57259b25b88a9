"""Quarantine files: read and refused, replayed, described in text and on a page."""

import json
import re
from types import SimpleNamespace

import numpy as np
import pytest

from robot_rl.errors import UserError
from robot_rl.view.chart import short
from robot_rl.view.inspect.page import _chart, render_page
from robot_rl.view.inspect.record import load_model, read_record
from robot_rl.view.inspect.replay import fastest, replay


def rewrite(path, target, **changes):
    """Write a file again with some arrays or entries of its description changed; None leaves one out."""
    with np.load(path) as data:
        arrays = {name: data[name] for name in data.files}
    about = json.loads(str(arrays.pop("about")))
    for name, value in changes.items():
        (arrays if name in arrays else about)[name] = value
    kept = {name: value for name, value in arrays.items() if value is not None}
    np.savez(target, about=np.array(json.dumps({k: v for k, v in about.items() if v is not None})), **kept)
    return target


def test_physics_that_runs_away_is_reproduced(exploded):
    """The replay has the world's own damping: with the shared model it would not break."""
    record = read_record(exploded)
    result = replay(record)
    assert result.verdict.startswith("Reproduced: the replay breaks in step -")
    assert "velocity of hinge" in result.verdict
    assert result.differences[0][0] < 1e-5
    assert record.suspects(result.bad_name) >= {"hinge"}
    first = fastest(record)[0]
    assert first.name in ("velocity of hinge", "velocity of slider")
    assert first.factor > 10


def test_a_bad_action_is_not_the_physics_fault(bad_action):
    record = read_record(bad_action)
    result = replay(record)
    assert record.about["why"][0] == "the action was not finite (action of slider is nan)"
    assert "Not reproduced by physics alone" in result.verdict
    assert "the error is in the policy" in result.verdict
    assert max(dq for dq, _ in result.differences) < 1e-5
    assert any("uses 0 for all controls of that step" in note for note in result.notes)
    assert fastest(record)[0].name == "action of slider"


def test_an_event_between_two_steps_is_followed(make_files):
    """A push is part of the record: the replay goes on from the state it left."""

    def spoil(env, actions, step):
        if step == 17:
            env.state.qvel[1, 1] = 3.0
            env.state.dirty[1] = 1
            env.write_back()
        if step == 20:
            actions[1] = np.nan

    result = replay(read_record(make_files(spoil)[0]))
    assert max(dq for dq, _ in result.differences) < 1e-5
    assert any("Events changed the state" in note for note in result.notes)


def test_another_mujoco_s_model_is_left_unchanged(bad_action, tmp_path):
    record = read_record(rewrite(bad_action, tmp_path / "old.npz", mujoco="3.1.0"))
    assert "MuJoCo 3.1.0" in str(load_model(record))
    result = replay(record)
    assert result.verdict.startswith("Not replayed")
    page = render_page(record, result, fastest(record), [])
    assert "Not replayed: it was made by MuJoCo 3.1.0" in page
    assert page.count("<figure") > 3


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"format": "robot-rl quarantine 9"}, "format 'robot-rl quarantine 9', this robot-rl reads"),
        ({"qvel": None}, "damaged, it lacks qvel"),
        ({"dof_names": None}, "damaged, it lacks dof_names"),
        ({"timestep": "fast"}, "damaged, a value of its description"),
        ({"reward": np.zeros(2)}, "damaged, its arrays do not fit"),
        ({"model": np.zeros(100, dtype=np.uint8)}, "damaged, the model in it"),
    ],
)
def test_damaged_and_foreign_files(bad_action, tmp_path, changes, message):
    with pytest.raises(UserError, match=message):
        read_record(rewrite(bad_action, tmp_path / "changed.npz", **changes))


def test_what_is_no_such_file(bad_action, tmp_path):
    with pytest.raises(UserError, match="no such file"):
        read_record(tmp_path / "none.npz")
    (tmp_path / "text.npz").write_text("hello")
    np.save(tmp_path / "one.npy", np.zeros(3))
    np.savez(tmp_path / "other.npz", weights=np.zeros(3))
    np.savez(tmp_path / "pickled.npz", about=np.array({"a": 1}, dtype=object))
    for name in ("text.npz", "one.npy", "other.npz", "pickled.npz"):
        with pytest.raises(UserError, match="no file of a quarantined world"):
            read_record(tmp_path / name)
    content = bad_action.read_bytes()
    for length in (0, 10, 1000, len(content) - 30):
        (tmp_path / "cut.npz").write_bytes(content[:length])
        with pytest.raises(UserError):
            read_record(tmp_path / "cut.npz")
    for at in range(200, len(content) - 200, len(content) // 23):
        (tmp_path / "bit.npz").write_bytes(content[:at] + bytes([content[at] ^ 0x55]) + content[at + 1 :])
        try:
            read_record(tmp_path / "bit.npz")
        except UserError:
            continue


def test_the_page_is_self_contained(exploded):
    record = read_record(exploded)
    page = render_page(record, replay(record), fastest(record), [(0, np.zeros((4, 4, 3), dtype=np.uint8))])
    assert not re.search(r"(src|href)=\"(?!data:)", page)
    assert page.count("<script") == 2
    assert "default-src &#x27;none&#x27;" in page or "default-src 'none'" in page
    charts = json.loads(re.search(r'id="data">(.*?)</script>', page)[1])["charts"]
    assert page.count("data-chart=") == len(charts) > 3
    assert page.count('class="chart suspect"') >= 2


def test_names_in_a_file_are_text(bad_action, tmp_path):
    record = read_record(rewrite(bad_action, tmp_path / "x.npz", task="<script>alert(1)</script>", why=["<b>x</b>"]))
    page = render_page(record, replay(record), fastest(record), [])
    assert page.count("<script") == 2
    assert "<b>x" not in page


def test_a_chart_says_what_it_cannot_draw():
    record = SimpleNamespace(times=np.linspace(-0.1, 0.0, 6))
    lost = _chart(record, "a", "m", np.array([1.0, 2.0, np.nan, 1.5, 1.0, np.inf]))
    assert lost.series[0].values == [1.0, 2.0, None, 1.5, 1.0, None]
    assert lost.note == "not finite: 2 of 6 values, the first at −60 ms"
    flown = _chart(record, "a", "m", np.array([0.0, 0.1, 0.0, 0.1, 500.0]), first=1)
    assert flown.series[0].values == [None, 0.0, 0.1, 0.0, 0.1, None]
    assert flown.note == "ends at 500"
    held = _chart(record, "a", "m", np.zeros(6), target=np.ones(5))
    assert (held.series[1].values, held.series[1].dashed) == ([1.0] * 5 + [None], True)
    assert [short(v) for v in (0.0, -12345.0, 152.4, 0.00012, float("nan"))] == ["0", "−1.2e4", "152", "1.2e−4", "nan"]


@pytest.mark.long
def test_the_charts_are_drawn(exploded, page, tmp_path):
    record = read_record(exploded)
    (tmp_path / "w.html").write_text(render_page(record, replay(record), fastest(record), []))
    page.call("Page.navigate", url=(tmp_path / "w.html").as_uri())
    page.wait("document.querySelectorAll('.plot .dot').length > 10")
    assert page.js("document.documentElement.dataset.errors") == "0"
    assert page.js("document.documentElement.dataset.charts") == page.js(
        "String(document.querySelectorAll('.plot .line').length)"
    )
