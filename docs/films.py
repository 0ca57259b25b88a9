"""Film four shipped policies and put them side by side into docs/img/four_tasks.webp, an image that moves.

python docs/films.py
"""

import subprocess
import sys
import tempfile
from pathlib import Path

import av
from PIL import Image

TASKS = ("go2_flat", "g1_track", "panda_lift", "go2_pair_carry")
SECONDS, FPS, EACH = 4.8, 25, 2
"""Length of the films [s], their frames a second, and which of them are kept: every second one."""
WIDTH, HEIGHT, STRIP = 960, 560, 76
"""Size of a film, and of the strip below it [px], which is cut off."""
SIZE = (432, 216)


def frames(policy: str, folder: Path) -> list[Image.Image]:
    """Return the images of a film of a policy."""
    film = folder / f"{policy}.mp4"
    size = (f"width={WIDTH}", f"height={HEIGHT}", f"seconds={SECONDS}", f"fps={FPS}")
    subprocess.run(
        [sys.executable, "-m", "robot_rl.cli.main", "video", f"policy={policy}", *size, f"out={film}"], check=True
    )
    with av.open(str(film)) as opened:
        images = [frame.to_image() for frame in opened.decode(video=0)][::EACH]
    return [image.crop((0, 0, WIDTH, HEIGHT - STRIP)).resize(SIZE, Image.Resampling.LANCZOS) for image in images]


def main() -> None:
    """Write the image."""
    with tempfile.TemporaryDirectory() as name:
        films = [frames(policy, Path(name)) for policy in TASKS]
    together = []
    for images in zip(*films, strict=True):
        image = Image.new("RGB", (2 * SIZE[0] + 4, 2 * SIZE[1] + 4), "white")
        for k, part in enumerate(images):
            image.paste(part, ((k % 2) * (SIZE[0] + 4), (k // 2) * (SIZE[1] + 4)))
        together.append(image)
    out = Path(__file__).parent / "img" / "four_tasks.webp"
    duration = round(1000 * EACH / FPS)
    together[0].save(out, save_all=True, append_images=together[1:], duration=duration, loop=0, quality=55, method=6)


if __name__ == "__main__":
    main()
