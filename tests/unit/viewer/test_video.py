"""Videos: what is in the file, and what is left when it fails."""

import contextlib

import av
import numpy as np
import pytest

from robot_rl.errors import UserError
from robot_rl.view.viewer.command import CommandInfo
from robot_rl.view.viewer.drive import Driver
from robot_rl.view.viewer.recording import Recording
from robot_rl.view.viewer.video import (
    COMMAND,
    VideoCfg,
    draw_progress,
    draw_tracking,
    strip_height,
    write_video,
)


def record(env, policy, path, cfg):
    with contextlib.closing(cfg.film(env, policy)) as frames:
        return write_video(frames, path, cfg.fps, total=round(cfg.seconds * cfg.fps), progress=False)


def read(path):
    """Frames (T, H, W, 3), codec name, pixel format and rate of a video."""
    with av.open(str(path)) as container:
        stream = container.streams.video[0]
        facts = stream.codec_context.name, stream.codec_context.pix_fmt, stream.average_rate
        return np.stack([f.to_ndarray(format="rgb24") for f in container.decode(video=0)]), *facts


def test_commanded_robot(gl, fake_env, tmp_path):
    env = fake_env()
    cfg = VideoCfg(seconds=2.0, fps=10, width=160, height=120)
    path = record(env, None, tmp_path / "new" / "video.mp4", cfg)
    frames, codec, pixels, rate = read(path)
    assert frames.shape == (20, 120, 160, 3)
    assert (pixels, rate) == ("yuv420p", 10)
    assert codec in ("h264", "vp9", "mpeg4")
    np.testing.assert_allclose(
        list(dict.fromkeys(env.commands)),
        [(0.75, 0, 0), (0, 0.375, 0), (0, 0, 0.6), (0.525, 0, -0.42), (0, 0, 0)],
        atol=1e-12,
    )
    # 1.9 s of 0.02 s: the last frame shows that moment.
    assert len(env.actions) == 95
    assert np.abs(frames[0].astype(int) - frames[10]).mean() > 1
    assert [p.name for p in path.parent.iterdir()] == ["video.mp4"]


def test_the_first_frame_shows_the_first_command(gl, fake_env):
    env = fake_env()
    with contextlib.closing(VideoCfg(seconds=0.1, fps=10, width=160, height=120).film(env, None)) as frames:
        next(frames)
    assert env.commands == [(0.75, 0.0, 0.0)]
    assert env.actions == []


def test_grid_of_four(gl, fake_env, tmp_path):
    env = fake_env(5, commanded=False)
    cfg = VideoCfg(seconds=0.2, fps=10, num_robots=4, width=160, height=120)
    frames = read(record(env, None, tmp_path / "video.mp4", cfg))[0]
    assert frames.shape == (2, 120, 160, 3)
    scene = frames[0][: 120 - strip_height(120)]
    red = scene[..., 0].astype(int) - scene[..., 1] > 50
    half = len(scene) // 2
    assert all(quarter.sum() > 30 for quarter in (red[:half, :80], red[:half, 80:], red[half:, :80], red[half:, 80:]))


def test_nothing_is_left_of_a_video_that_fails(gl, fake_env, tmp_path):
    env = fake_env()
    calls = []

    def policy(obs):
        calls.append(1)
        if len(calls) > 5:
            raise RuntimeError("broken policy")
        return obs["actor"][:, :1]

    (tmp_path / "video.mp4").write_text("the old one")
    with pytest.raises(RuntimeError, match="broken policy"):
        record(env, policy, tmp_path / "video.mp4", VideoCfg(width=160, height=96))
    assert [(p.name, p.read_text()) for p in tmp_path.iterdir()] == [("video.mp4", "the old one")]


@pytest.mark.parametrize(
    ("field", "value"),
    [("seconds", 0), ("seconds", 1e9), ("fps", 0), ("num_robots", 3), ("width", 63), ("height", 9000)],
)
def test_settings_out_of_range(field, value):
    with pytest.raises(UserError, match=str(value)):
        VideoCfg(**{field: value})


def test_too_few_worlds(fake_env, tmp_path):
    with pytest.raises(UserError, match="num_robots=4"):
        record(fake_env(2), None, tmp_path / "video.mp4", VideoCfg(num_robots=4))


def test_strip_marks_the_command():
    size = (640, strip_height(480))
    ends = {"lower": -np.ones(3), "upper": np.ones(3)}
    info = CommandInfo(names=("a", "b", "c"), units=("m/s", "m/s", "rad/s"), frame="base", draws="velocity", **ends)
    strips = [
        draw_tracking(size, "go", 1.0, info=info, command=np.array([c, 0, 0]), measured=np.zeros(3))
        for c in (-0.5, 0.5, 7.0)
    ]
    assert strips[0].shape == (size[1], 640, 3)
    # Only the mark reaches below the bar; the first gauge's moves right with the command, and stops at the end.
    row = round(0.77 * size[1])
    marks = [np.nonzero((strip[row] == COMMAND).all(-1))[0][0] for strip in strips]
    width = (640 - marks[0]) / 3
    assert marks[0] + 0.3 * width < marks[1] < marks[2] < marks[0] + width


def test_strip_of_another_task():
    strip = draw_progress((320, 36), "cartpole", 2.0, "return 12.3")
    assert strip.shape == (36, 320, 3)
    assert (strip < 100).any()


def test_what_was_played_becomes_a_film(fake_env, tmp_path):
    env, said = fake_env(2), []
    env.set_command((0.5, 0.0, 0.0))
    driver = Driver(env, None)
    recording = Recording(driver, None, 1, 0.2)
    while not recording.is_done:
        recording.note()
        driver.step()
    assert driver.time_s == pytest.approx(0.18)  # 5 frames, one every 0.04 s, and the step after the last one
    recording.write(tmp_path, said.append).join()
    (film,) = tmp_path.glob("play-fake-*.mp4")
    assert said == [f"recorded: {film}"]
    assert len(read(film)[0]) == 5
