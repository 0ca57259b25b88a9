"""The settings of a video, checked before anything that can draw is imported."""

from dataclasses import dataclass

from robot_rl.errors import UserError


@dataclass(kw_only=True, slots=True)
class VideoCfg:
    """Settings of a video.

    Attributes:
        seconds: its length [s]; simulated time runs in real time.
        fps: frames per second; at most one per control step is rendered.
        num_robots: 1, or 4 for a grid of two by two worlds.
        width, height: of the frame [px], even.
        motion: the only reference motion to follow, from its beginning; empty for any.
    """

    seconds: float = 10.0
    fps: int = 25
    num_robots: int = 1
    width: int = 640
    height: int = 480
    motion: str = ""

    def __post_init__(self) -> None:
        """Check the ranges."""
        if not 0 < self.seconds <= 600:
            raise UserError(f"seconds={self.seconds}: must be in (0, 600]")
        if not 1 <= self.fps <= 120:
            raise UserError(f"fps={self.fps}: must be in [1, 120]")
        if self.num_robots not in (1, 4):
            raise UserError(f"robots={self.num_robots}: must be 1, or 4 for a grid")
        if self.width % 4 or self.height % 4 or not (160 <= self.width <= 4096 and 96 <= self.height <= 4096):
            raise UserError(
                f"width x height={self.width} x {self.height}: must be multiples of 4, 160 x 96 to 4096 x 4096"
            )
