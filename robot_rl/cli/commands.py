"""The commands in groups by their purpose; a page of reference, --help and completion read them from here."""

import itertools

COMMAND_GROUPS: dict[str, tuple[str, ...]] = {
    "Train": ("train", "resume", "eval", "profile", "bench", "compile", "drill"),
    "Look": (
        *("list", "runs", "watch", "board", "play", "video", "report", "sync", "terrain", "motion", "record"),
        *("inspect", "cross"),
    ),
    "Robot": (
        *("export", "certify", "sign", "deploy", "sim2sim", "adapt", "replay", "latency", "identify", "explain"),
        *("usd", "import-mjlab"),
    ),
    "Cluster": ("preflight", "manifest", "flow", "serve-metrics", "worker"),
    "Extend": ("new", "check", "completion"),
}
"""Commands of other packages are listed with the last group.

Each command is the module robot_rl.cli.<command>, with _ for -: its docstring is the help, `run(arguments)` runs it.
"""
COMMANDS = tuple(itertools.chain.from_iterable(COMMAND_GROUPS.values()))
