"""Pages of the settings of `robot-rl train`, from the classes that hold them."""

import dataclasses
import inspect
import re
from collections.abc import Iterator
from typing import Any

from pieces import boosted, code, described, paragraphs, plain, prose, table
from robot_rl_envs import agents, measured, objects, term_config
from robot_rl_envs.actuation import actuators
from robot_rl_envs.sensing import camera, foot_force, height_scan, imu
from robot_rl_envs.sensing.pipeline import OPTIONS
from robot_rl_envs.task import Actions, ObservationGroup, Sim, Task
from robot_rl_envs.terrain import cfg as terrain
from robot_rl_envs.terrain import tiles

from robot_rl.cluster.launchers import list_launchers
from robot_rl.cluster.search import SearchCfg
from robot_rl.learn import algorithms
from robot_rl.metrics.writers import WANDB_MODES
from robot_rl.settings import LearnerCfg
from robot_rl.settings.run import RunCfg
from robot_rl.settings.schema import help_of, rules_of

Row = tuple[str, str, str]
"""Name, default and meaning of a setting."""
LARGE = 10_000
"""A bound above it only keeps out what is not meant, and is omitted."""
HEADS = ("setting", "default", "meaning")

TASK_FIELDS = ("episode_length_s", "only_positive_rewards", "mirror", "tracked")
TASK_GROUPS: list[tuple[str, list[tuple[str, type]]]] = [
    ("Physics", [("sim.", Sim)]),
    ("Actions", [("actions.", Actions)]),
    (
        "Actuators",
        [
            ("actions.actuator.", one)
            for one in (
                actuators.Actuator,
                actuators.PositionPd,
                actuators.DcMotor,
                actuators.ExplicitPd,
                actuators.ActuatorNet,
            )
        ],
    ),
    ("Rewards", [("rewards.<name>.", term_config.Reward)]),
    (
        "Observations",
        [
            ("observations.<group>.", ObservationGroup),
            ("observations.<group>.terms.<name>.", term_config.Observation),
            ("observations.<group>.", camera.ImageGroup),
            ("observations.<group>.camera.", camera.Camera),
        ],
    ),
    ("Terminations", [("terminations.<name>.", term_config.Termination)]),
    ("Commands", [("commands.<name>.", term_config.Command)]),
    ("Events", [("events.<name>.", term_config.Event)]),
    ("Metrics", [("metrics.<name>.", term_config.Metric)]),
    (
        "Sensors",
        [
            ("sensors.imu.", imu.Imu),
            ("sensors.foot_force.", foot_force.FootForce),
            ("sensors.height_scan.", height_scan.HeightScan),
        ],
    ),
    (
        "Terrain",
        [("terrain.", terrain.TerrainCfg), ("terrain.tiles.<name>.", tiles.Tile)]
        + [("terrain.tiles.<name>.", kind) for kind in tiles.Tile.__subclasses__()],
    ),
    (
        "Objects and contacts",
        [("objects.<name>.", objects.Object)]
        + [("objects.<name>.", kind) for kind in (*objects.Object.__subclasses__(), objects.Articulated)]
        + [("contacts.<name>.", objects.Contact)],
    ),
    ("Randomization from files", [("randomize.", measured.Randomize)]),
    (
        "Teams",
        [("robots.<name>.", agents.Agent), ("team.", agents.Team), ("messages.<name>.", agents.Message)],
    ),
]
"""The groups of a task's settings: heading, and the classes that hold them with the prefix of their names."""


def limits(rule: Any) -> str:
    """Return the range or the choices of a setting, as its class checks them; empty if any value is valid."""
    if rule.get("choices"):
        return f"One of {', '.join(f'`{choice}`' for choice in rule['choices'])}."
    low, above, high = (rule.get(key) for key in ("least", "above", "most"))
    words = []
    if low is not None or above is not None:
        words.append(f"at least {plain(low)}" if above is None else f"above {plain(above)}")
    if high is not None and high <= LARGE:
        words.append(f"at most {plain(high)}")
    return f"{' and '.join(words).capitalize()}." if words else ""


def rows(cfg: Any, prefix: str = "") -> Iterator[Row]:
    """Yield the settings of an object of settings, and of the groups in it."""
    texts, rules = help_of(type(cfg)), rules_of(type(cfg))
    for field in dataclasses.fields(cfg):
        value = getattr(cfg, field.name)
        name = field.metadata.get("called") or f"{prefix}{field.name.rstrip('_')}"
        if dataclasses.is_dataclass(value):
            yield from rows(value, f"{name}.")
        elif field.name not in ("name", *getattr(cfg, "unused", ())):
            yield name, code(value), meaning(texts.get(field.name, ""), limits(rules[field.name]))


def meaning(text: str, more: str = "") -> str:
    """Return the text about a setting as a sentence, and its limits."""
    text = prose(text.rstrip("."))
    if re.match(r"[a-z]+ [a-z]", text):  # Not the name of a choice.
        text = text[0].upper() + text[1:]
    return " ".join(part for part in (f"{text}." if text else "", more) if part)


def shown(found: list[Row]) -> str:
    """Return settings as a table."""
    return table(HEADS, ((f"`{name}`", default, text) for name, default, text in found), "settings defaults")


def task_rows(cls: type, prefix: str = "") -> list[Row]:
    """Return the settings of a class of a task's parts, without those of the class that it is derived from."""
    texts = described(cls)
    found = [(name, default) for name, default in _own_defaults(cls).items() if not _is_group(default)]
    return [(f"{prefix}{name}", code(default), meaning(texts.get(name, ""))) for name, default in found]


def _own_defaults(cls: type) -> dict[str, Any]:
    """Return the defaults of a class's own fields, or of the options of a kind of terms; None if one is required."""
    if dataclasses.is_dataclass(cls):
        base = cls.__mro__[1]
        inherited = {one.name for one in dataclasses.fields(base)} if dataclasses.is_dataclass(base) else set()
        fields = [one for one in dataclasses.fields(cls) if one.name not in inherited and _can_be_set(one)]
        made = {one.name: one.default_factory() for one in fields if one.default_factory is not dataclasses.MISSING}
        return {one.name: None if one.default is dataclasses.MISSING else one.default for one in fields} | made
    given = inspect.signature(cls).parameters.values()
    options = {one.name: one.default for one in given if one.kind is one.KEYWORD_ONLY}
    found = {name: None if value is inspect.Parameter.empty else value for name, value in options.items()}
    return found | (OPTIONS if cls is term_config.Observation else {})


def _can_be_set(field: Any) -> bool:
    return field.metadata.get("setting", True) and "dict" not in str(field.type)


def _is_group(value: Any) -> bool:
    return isinstance(value, dict) or dataclasses.is_dataclass(value)


def run_page() -> str:
    """Return the page of the settings of every run, of searches and of logging."""
    wandb = ("metrics.wandb", "`off`", f"Weights & Biases. {limits({'choices': WANDB_MODES})}")
    return f"""# Settings of a run

`robot-rl train task=<name> key=value ...` takes these settings for every task and learner, and those of the
[learner](learners.md), of the [task](task_settings.md) and of the [launcher](launchers.md). `robot-rl train task=<name>
--cfg job` prints all of them with their values, and [each shipped task](shipped.md) has a page with its own.

## Run

{shown(list(rows(RunCfg())))}

## Logging

JSON lines and TensorBoard are always written.

{shown([wandb])}

## Searches

`robot-rl train -m sweeper=optuna` searches with these settings ([launchers and searches](../launchers.md)).

{shown(list(rows(SearchCfg(), "sweeper.")))}
"""


def learners_page() -> str:
    """Return the page of the settings of learners: those that all have once, and what differs in each."""
    common = list(rows(LearnerCfg()))
    parts = [
        "# Settings of learners\n\n`learner=<name>` chooses the algorithm. The first table has the settings of all "
        "learners; the others have those that a learner adds, and the defaults that it changes. A task has its own "
        "presets on top of them. [Choosing a learner](../choosing_a_learner.md) compares them.\n",
        f"## Every learner\n\n{shown(common)}",
    ]
    for name in algorithms.REGISTRY.files():
        cls = algorithms.get_learner(name)
        own = [row for row in rows(cls()) if row not in common]
        parts.append(f"## `learner={name}` {{ #{name} }}\n\n{paragraphs(cls.__doc__ or '')}\n\n{shown(own)}")
    return "\n".join(parts)


def launchers_page() -> str:
    """Return the page of the settings of launchers."""
    parts = [
        "# Settings of launchers\n\n`launcher=<name>` chooses what starts the processes of a run, and "
        "`launcher.<setting>=` sets it ([launchers](../launchers.md)).\n"
    ]
    for name, cls in list_launchers().items():
        found = list(rows(cls(), "launcher."))
        body = shown(found) if found else "This launcher does not have settings."
        parts.append(f"## `launcher={name}` {{ #{name} }}\n\n{paragraphs(cls.__doc__ or '')}\n\n{body}")
    return "\n".join(parts)


def task_settings_page() -> str:
    """Return the page of the settings of every task, by group."""
    own = [row for row in task_rows(Task) if row[0] in TASK_FIELDS]
    parts = [
        "# Settings of a task\n\nA task lists its parts by name, and each value can be set by its dotted name, such "
        "as `rewards.track.weight=2`. `<name>` stands for the name that the task gives the part. A term's own "
        "parameters, such as `std`, are set next to its options; [Terms](terms/rewards.md) has them. "
        "`~rewards.<name>` removes a part.\n",
        f"## The task\n\n{shown(own)}",
    ]
    for heading, classes in TASK_GROUPS:
        parts.append(f"## {heading}\n")
        for prefix, cls in classes:
            found = task_rows(cls, prefix)
            parts.append(f"### `{cls.__name__}`\n\n{paragraphs(cls.__doc__ or '')}\n\n{shown(found) if found else ''}")
    return "\n".join(parts)


def pages() -> dict[str, str]:
    """Return the pages by their place in the site."""
    makers = {"settings": run_page, "learners": learners_page, "launchers": launchers_page}
    makers |= {"task_settings": task_settings_page}
    return {f"reference/{name}.md": boosted(8) + make() for name, make in makers.items()}
