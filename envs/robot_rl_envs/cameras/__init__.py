"""Depth and colour cameras: an observation group of images, rendered for all worlds at once on either engine."""

from robot_rl_envs.cameras.config import Camera, ImageGroup

__all__ = ["Camera", "ImageGroup"]
