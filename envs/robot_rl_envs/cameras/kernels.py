"""A camera in one world: draw its faults at a reset, aim, render, deliver the image when it is due."""

import warp as wp

from robot_rl_envs.quat import quat_from_axis_angle, quat_multiply
from robot_rl_envs.rng import stream

NOWHERE = wp.constant(1.0e6)
"""Height [m] of a camera without an image in this step: looking up from there it hits nothing, at no cost."""


@wp.struct
class Lens:
    """What is the same in every world; see :class:`robot_rl_envs.cameras.Camera`."""

    seed: int
    world_offset: int
    salt: int
    pixel_salt: int
    body: int
    camera: int
    pos: wp.vec3
    quat: wp.vec4
    pos_jitter: float
    angle_jitter: float
    every: int
    delay_lo: int
    delay_hi: int
    dropout_lo: float
    dropout_hi: float
    near: float
    far: float
    noise: float
    missing: float


@wp.struct
class Shots:
    """One row a world: its draws at the reset, and its delayed images, ``slots`` of them (0 without a delay)."""

    step_count: wp.array(dtype=wp.int32)  # the environment's: control steps since the reset
    counter: wp.array(dtype=wp.int32)  # the environment's: control steps ever
    mount_pos: wp.array(dtype=wp.vec3)  # in the body's frame [m]
    mount_quat: wp.array(dtype=wp.vec4)
    phase: wp.array(dtype=wp.int32)  # step, modulo every, in which images are taken
    delay: wp.array(dtype=wp.int32)  # control steps
    dropout: wp.array(dtype=wp.float32)  # share of images that are lost
    taken: wp.array2d(dtype=wp.int32)  # (N, slots) step in which the image in a slot was taken, -1 empty
    current: wp.array(dtype=wp.int32)  # step in which the image delivered now was taken
    slot: wp.array(dtype=wp.int32)  # place of this step's image; -1: none is taken
    show: wp.array(dtype=wp.int32)  # which one is delivered from this step on; -1: the one before


@wp.func
def draw_faults(c: Lens, a: Shots, i: int, rng: wp.uint32):
    """Draw world i's mount, phase, delay and share of lost images, and forget its images."""
    j = c.pos_jitter
    off = wp.vec3((2.0 * wp.randf(rng) - 1.0) * j, (2.0 * wp.randf(rng) - 1.0) * j, (2.0 * wp.randf(rng) - 1.0) * j)
    angle = c.angle_jitter
    turn_x = quat_from_axis_angle(wp.vec3(1.0, 0.0, 0.0), (2.0 * wp.randf(rng) - 1.0) * angle)
    turn_y = quat_from_axis_angle(wp.vec3(0.0, 1.0, 0.0), (2.0 * wp.randf(rng) - 1.0) * angle)
    turn_z = quat_from_axis_angle(wp.vec3(0.0, 0.0, 1.0), (2.0 * wp.randf(rng) - 1.0) * angle)
    a.mount_pos[i] = c.pos + off
    a.mount_quat[i] = quat_multiply(c.quat, quat_multiply(turn_z, quat_multiply(turn_y, turn_x)))
    a.phase[i] = wp.randi(rng, 0, c.every)
    a.delay[i] = wp.randi(rng, c.delay_lo, c.delay_hi + 1)
    a.dropout[i] = c.dropout_lo + (c.dropout_hi - c.dropout_lo) * wp.randf(rng)
    for k in range(a.taken.shape[1]):
        a.taken[i, k] = -1


@wp.func
def newest_due(a: Shots, i: int, step: int) -> int:
    """Return the slot of the newest image that is old enough to be delivered in ``step``; -1 keeps the current one."""
    best = int(-1)
    latest = a.current[i]
    for k in range(a.taken.shape[1]):
        t = a.taken[i, k]
        if t > latest and t <= step - a.delay[i]:
            best, latest = k, t
    a.current[i] = latest
    return best


@wp.func
def rotation_of(q: wp.vec4) -> wp.mat33:
    """Return the matrix of a unit quaternion w, x, y, z."""
    w, x, y, z = q[0], q[1], q[2], q[3]
    return wp.mat33(
        1.0 - 2.0 * (y * y + z * z), 2.0 * (x * y - w * z), 2.0 * (x * z + w * y),
        2.0 * (x * y + w * z), 1.0 - 2.0 * (x * x + z * z), 2.0 * (y * z - w * x),
        2.0 * (x * z - w * y), 2.0 * (y * z + w * x), 1.0 - 2.0 * (x * x + y * y),
    )  # fmt: skip


@wp.kernel(enable_backward=False)
def aim(
    c: Lens,
    a: Shots,
    first: int,
    xpos: wp.array2d(dtype=wp.vec3),
    xmat: wp.array2d(dtype=wp.mat33),
    # outputs
    cam_xpos: wp.array2d(dtype=wp.vec3),
    cam_xmat: wp.array2d(dtype=wp.mat33),
):
    """Decide in which worlds an image is taken and delivered in this step, and point their cameras."""
    row = wp.tid()
    i = first + row
    step = a.step_count[i]
    fresh = step == 0
    rng = stream(c.seed, c.world_offset + i, a.counter[i], c.salt)
    lost = wp.randf(rng)
    if fresh:
        draw_faults(c, a, i, rng)
        a.current[i] = -1
    due = fresh or (step % c.every == a.phase[i] and lost >= a.dropout[i])
    a.slot[i] = -1
    a.show[i] = -1
    if due:
        turn = xmat[row, c.body]
        cam_xpos[row, c.camera] = xpos[row, c.body] + turn * a.mount_pos[i]
        cam_xmat[row, c.camera] = turn * rotation_of(a.mount_quat[i])
    else:
        cam_xpos[row, c.camera] = wp.vec3(0.0, 0.0, NOWHERE)
        cam_xmat[row, c.camera] = wp.mat33(1.0, 0.0, 0.0, 0.0, -1.0, 0.0, 0.0, 0.0, -1.0)
    if a.taken.shape[1] == 0:
        if due:
            a.slot[i] = 0
        return
    if due:
        free = int(0)
        for k in range(1, a.taken.shape[1]):
            if a.taken[i, k] < a.taken[i, free]:
                free = k
        a.taken[i, free] = step
        a.slot[i] = free
    if fresh:
        # Without an older image the first one is delivered at once, until the second is old enough.
        a.show[i] = a.slot[i]
        a.current[i] = 0
    else:
        a.show[i] = newest_due(a, i, step)


@wp.func
def depth_value(c: Lens, depth: float, rng: wp.uint32) -> float:
    """Return the camera's value of a rendered depth [m], 0 if the ray hit nothing."""
    if c.missing > 0.0 and wp.randf(rng) < c.missing:
        return 0.0
    if depth <= 0.0:
        return 1.0
    d = depth
    if c.noise > 0.0:
        d = d * (1.0 + c.noise * wp.randn(rng))
    return wp.clamp(d, c.near, c.far) / c.far


@wp.kernel(enable_backward=False)
def take_depth(
    c: Lens,
    a: Shots,
    first: int,
    rendered: wp.array2d(dtype=wp.float32),
    # outputs
    image: wp.array4d(dtype=wp.float32),
):
    """Read a rendered depth image into ``image`` (worlds, slots, 1, pixels) if it was taken."""
    row, pixel = wp.tid()
    i = first + row
    k = a.slot[i]
    if k < 0:
        return
    rng = wp.uint32(0)
    if c.noise > 0.0 or c.missing > 0.0:
        lane = stream(c.seed, c.world_offset + i, a.counter[i], c.pixel_salt)
        rng = wp.rand_init(int(lane), pixel)
    image[i, k, 0, pixel] = depth_value(c, rendered[row, pixel], rng)


@wp.kernel(enable_backward=False)
def take_rgb(
    c: Lens,
    a: Shots,
    first: int,
    rendered: wp.array2d(dtype=wp.uint32),
    # outputs
    image: wp.array4d(dtype=wp.float32),
):
    """Read a rendered color image into ``image`` (worlds, slots, 3, pixels) if it was taken."""
    row, pixel = wp.tid()
    i = first + row
    k = a.slot[i]
    if k < 0:
        return
    packed = rendered[row, pixel]
    red = float((packed >> wp.uint32(16)) & wp.uint32(255)) / 255.0
    green = float((packed >> wp.uint32(8)) & wp.uint32(255)) / 255.0
    blue = float(packed & wp.uint32(255)) / 255.0
    if c.noise > 0.0:
        lane = stream(c.seed, c.world_offset + i, a.counter[i], c.pixel_salt)
        rng = wp.rand_init(int(lane), pixel)
        red = wp.clamp(red + c.noise * wp.randn(rng), 0.0, 1.0)
        green = wp.clamp(green + c.noise * wp.randn(rng), 0.0, 1.0)
        blue = wp.clamp(blue + c.noise * wp.randn(rng), 0.0, 1.0)
    image[i, k, 0, pixel] = red
    image[i, k, 1, pixel] = green
    image[i, k, 2, pixel] = blue


@wp.kernel(enable_backward=False)
def deliver(
    first: int,
    show: wp.array(dtype=wp.int32),
    images: wp.array4d(dtype=wp.float32),
    # outputs
    out: wp.array4d(dtype=wp.float32),
):
    """Copy the image that is due from ``images`` (worlds, slots, channels, pixels) to ``out``'s only slot."""
    row, pixel = wp.tid()
    i = first + row
    k = show[i]
    if k >= 0:
        for channel in range(out.shape[2]):
            out[i, 0, channel, pixel] = images[i, k, channel, pixel]


@wp.kernel(enable_backward=False)
def paint(
    owners: wp.array(dtype=wp.int32),
    tint: wp.array3d(dtype=wp.float32),
    # outputs
    geom_rgba: wp.array2d(dtype=wp.vec4),
):
    """Give the geoms of objects the color that their world drew; the opacity stays."""
    row, geom = wp.tid()
    o = owners[geom]
    if o >= 0 and tint[row, o, 3] > 0.0:
        geom_rgba[row, geom] = wp.vec4(tint[row, o, 0], tint[row, o, 1], tint[row, o, 2], geom_rgba[row, geom][3])
