"""Images of the recorded states: the world's collision shapes, with suspicious links in another color."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING

import numpy as np

from robot_rl.view.inspect.record import Record, load_model

if TYPE_CHECKING:
    import mujoco

WIDTH, HEIGHT = 320, 240
MAX_FRAMES = 8
GROUND, BODY, SUSPECT = (1.0, 1.0, 1.0, 1.0), (0.5, 0.64, 0.82, 1.0), (1.0, 0.42, 0.16, 1.0)


def film(record: Record, words: str = "") -> list[tuple[int, np.ndarray]]:
    """Draw the last recorded states; one that is not finite is drawn as the last finite one.

    Args:
        record: the record.
        words: `Replay.bad_name`; the links that it mentions are also highlighted.

    Returns:
        (index of the state, (HEIGHT, WIDTH, 3) uint8) of each image; none without a model or OpenGL.
    """
    from robot_rl_envs.render import NoGLError, Renderer

    model = load_model(record)
    if isinstance(model, str):
        return []
    finite = np.flatnonzero(np.isfinite(record.qpos).all(axis=1))
    chosen = sorted({*np.linspace(0, len(record.qpos) - 1, MAX_FRAMES).round().astype(int).tolist()})
    if not finite.size:
        return []
    try:
        with Renderer(_painted(model, record.suspects(words)), WIDTH, HEIGHT) as renderer:
            frames = []
            for k in chosen:
                before = finite[finite <= k]
                frames.append((k, renderer.frame(record.qpos[before[-1] if before.size else finite[0]])))
            return frames
    except NoGLError:
        return []


def strip(frames: list[tuple[int, np.ndarray]]) -> np.ndarray:
    """Return the images side by side, with two pixels of white between them."""
    gap = np.full((HEIGHT, 2, 3), 255, dtype=np.uint8)
    parts: list[np.ndarray] = []
    for _, frame in frames:
        parts += [frame, gap]
    return np.concatenate(parts[:-1], axis=1)


def _painted(model: mujoco.MjModel, suspects: set[str]) -> mujoco.MjModel:
    """Return a copy with visible collision shapes."""
    model = copy.copy(model)
    model.geom_group[:] = 0
    model.geom_matid[:] = -1
    moving = model.body_weldid[model.geom_bodyid] > 0
    model.geom_rgba[:] = np.where(moving[:, None], BODY, GROUND)
    for name in suspects & {model.joint(j).name for j in range(model.njnt)}:
        model.geom_rgba[model.geom_bodyid == model.joint(name).bodyid[0]] = SUSPECT
    return model
