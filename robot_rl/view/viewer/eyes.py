"""What a robot's cameras see, enlarged for a page or a film."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np


def camera_images(env: Any, obs: Mapping[str, Any], world: int, width: int) -> dict[str, np.ndarray]:
    """Return the images that a world's cameras deliver, by observation group; empty without cameras.

    Args:
        env: the environment.
        obs: its observations; image groups are (N, C, H, W) in [0, 1].
        world: index of the world.
        width: of the images [px], about: each pixel becomes a whole number of them.

    Returns:
        Group -> (height, width, 3) uint8; depth is gray, white where far.
    """
    found = {}
    for name in getattr(env.cfg, "images", {}):
        image = (obs[name][world].detach().cpu().numpy() * 255.0).round().astype(np.uint8)
        times = max(1, round(width / image.shape[2]))
        image = np.broadcast_to(image, (3, *image.shape[1:])).transpose(1, 2, 0)
        found[name] = image.repeat(times, axis=0).repeat(times, axis=1)
    return found


def with_inset(frame: np.ndarray, images: Mapping[str, np.ndarray]) -> np.ndarray:
    """Return a frame (H, W, 3) with images in its lower right corner, the first one below; those that fit."""
    frame, bottom = frame.copy(), frame.shape[0]
    for image in images.values():
        height, width = image.shape[:2]
        if height > bottom or width > frame.shape[1]:
            break
        frame[bottom - height : bottom, frame.shape[1] - width :] = image
        bottom -= height
    return frame
