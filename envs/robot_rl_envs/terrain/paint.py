"""Colours of a height map: what lies low is blue, ground at 0 is light, what stands high is brown."""

from __future__ import annotations

import numpy as np

STOPS = (
    (-1.0, (46, 66, 104)),
    (-0.45, (92, 126, 158)),
    (-0.12, (168, 190, 204)),
    (0.0, (222, 224, 222)),
    (0.12, (221, 205, 168)),
    (0.45, (196, 150, 96)),
    (1.0, (126, 78, 52)),
)
"""Height as a share of the scale, and its colour."""


def colour(heights: np.ndarray, scale: float | None = None) -> np.ndarray:
    """Return the colour (..., 3) uint8 of each height (...) [m].

    ``scale`` is the height of the last colour [m]; by default the largest height above or below 0, at least 5 cm.
    """
    if scale is None:
        scale = max(float(np.abs(heights).max(initial=0.0)), 0.05)
    at = np.clip(heights / scale, -1.0, 1.0)
    places = [place for place, _ in STOPS]
    channels = [np.interp(at, places, [rgb[k] for _, rgb in STOPS]) for k in range(3)]
    return np.round(np.stack(channels, axis=-1)).astype(np.uint8)


def shade(heights: np.ndarray, resolution: float, strength: float = 0.55) -> np.ndarray:
    """Return factors (ny, nx) for a map's colours in light from the upper left: 1 on level ground.

    ``heights`` (ny, nx) and ``resolution`` [m]; ``strength`` of the shadows in [0, 1].
    """
    along_y, along_x = np.gradient(heights.astype(np.float64), resolution)
    light = np.array([-0.5, 0.5, 0.9]) / np.linalg.norm([-0.5, 0.5, 0.9])
    bright = (light[2] - along_x * light[0] - along_y * light[1]) / np.sqrt(1 + along_x**2 + along_y**2)
    return np.clip(1 + strength * (bright - light[2]), 0.3, 1.12)
