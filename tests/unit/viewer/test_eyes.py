"""What cameras see, enlarged for a page or put into a film's frame."""

from types import SimpleNamespace

import numpy as np
import torch

from robot_rl.view.viewer.eyes import camera_images, with_inset


def test_depth_is_grey_and_color_is_itself_each_pixel_enlarged():
    env = SimpleNamespace(cfg=SimpleNamespace(images={"wrist": None, "front": None}))
    colors = torch.rand(2, 3, 2, 2)
    obs = {"wrist": torch.tensor([[[[0.0, 1.0, 0.5]]], [[[1.0, 1.0, 1.0]]]]), "front": colors}
    images = camera_images(env, obs, 0, 12)
    assert images["wrist"].shape == (4, 12, 3)
    assert images["wrist"][0, ::4].tolist() == [[0] * 3, [255] * 3, [128] * 3]
    assert (images["wrist"][0, :4] == 0).all()
    assert images["front"].shape == (12, 12, 3)
    wanted = (colors[0, :, 1, 0] * 255).round().to(torch.uint8)
    assert images["front"][11, 0].tolist() == wanted.tolist()
    assert camera_images(SimpleNamespace(cfg=SimpleNamespace()), obs, 0, 12) == {}


def test_an_inset_is_in_the_lower_right_corner_and_the_next_above_it():
    frame = np.zeros((10, 20, 3), np.uint8)
    images = {"a": np.full((4, 6, 3), 1, np.uint8), "b": np.full((3, 2, 3), 2, np.uint8)}
    seen = with_inset(frame, images | {"too_high": np.full((9, 2, 3), 3, np.uint8)})
    assert (seen[6:, 14:] == 1).all()
    assert (seen[3:6, 18:] == 2).all()
    assert seen.astype(int).sum() == 3 * (24 + 2 * 6)
    assert not frame.any()
