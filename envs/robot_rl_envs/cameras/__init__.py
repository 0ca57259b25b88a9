"""Depth and color cameras: an observation group of images, rendered for all worlds at once on either engine."""

from robot_rl_envs.sensing.camera import Camera, ImageGroup

__all__ = ["Camera", "ImageGroup"]
