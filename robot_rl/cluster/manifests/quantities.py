"""Times and memory as users write them, and as schedulers want them."""

import re

from robot_rl.errors import UserError

MAX_SECONDS = 366 * 86_400
MAX_MEBIBYTES = 64 * 1024**2
_UNITS = {"M": 1, "G": 1024, "T": 1024**2}
_TIMES = (
    (re.compile(r"(\d+)"), (60,)),
    (re.compile(r"(\d+):([0-5]?\d)"), (60, 1)),
    (re.compile(r"(\d+):([0-5]?\d):([0-5]?\d)"), (3600, 60, 1)),
    (re.compile(r"(\d+)-([01]?\d|2[0-3])"), (86_400, 3600)),
    (re.compile(r"(\d+)-([01]?\d|2[0-3]):([0-5]?\d)"), (86_400, 3600, 60)),
    (re.compile(r"(\d+)-([01]?\d|2[0-3]):([0-5]?\d):([0-5]?\d)"), (86_400, 3600, 60, 1)),
)


def read_seconds(time: str, name: str = "time") -> int:
    """Return a time limit [s]; 0 if there is none.

    Args:
        time: As Slurm reads it: minutes, minutes:seconds, hours:minutes:seconds, days-hours, days-hours:minutes or
            days-hours:minutes:seconds; "" for no limit.
        name: The setting, for the error.

    Raises:
        UserError: It is not such a time, zero, or more than a year.
    """
    text = str(time)
    if not text:
        return 0
    for form, factors in _TIMES:
        if len(text) <= 20 and text.isascii() and (match := form.fullmatch(text)):
            seconds = sum(int(part) * factor for part, factor in zip(match.groups(), factors, strict=True))
            if not 0 < seconds <= MAX_SECONDS:
                raise UserError(name, text, "must be from a second to 366 days")
            return seconds
    raise UserError(name, text[:80], "no time", "write it as hours:minutes:seconds, days-hours or minutes")


def read_mebibytes(memory: str, name: str = "memory") -> int:
    """Return an amount of memory [MiB]; 0 if none is given.

    Args:
        memory: A whole number with M, G or T (or Mi, Gi, Ti), of 1024 each: 16G, 16Gi; "" for none.
        name: The setting, for the error.

    Raises:
        UserError: It is not such an amount, zero, or more than 64 TiB.
    """
    if not memory:
        return 0
    match = re.fullmatch(r"([0-9]{1,9})([MGT])i?", memory)
    if match is None:
        raise UserError(name, memory[:80], "no amount of memory", "write it as 16G or 512M")
    amount = int(match[1]) * _UNITS[match[2]]
    if not 0 < amount <= MAX_MEBIBYTES:
        raise UserError(name, memory, "must be from 1M to 64T")
    return amount
