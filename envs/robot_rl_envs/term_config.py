"""The entries of a task's lists: a term, its parameters and its options. Plain data; nothing is compiled here."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from robot_rl_envs.agents import CREDITS, SCOPES
from robot_rl_envs.sensing.pipeline import OPTIONS, check_options
from robot_rl_envs.terms import term_info
from robot_rl_envs.terms.checks import check_ranges, figure, is_whole, require

OVER = ("mean", "end", "max", "min")
"""What an evaluation takes of a metric over an episode's steps."""

NAMED = ("body", "joint", "site", "object", "object_joint", "contact", "sensor", "message")
"""What a parameter may name: one that is called so, or ends so (``left_site``)."""

CLIP = 100.0
"""Default bound on an observation's magnitude."""


def reference_kind(param: str) -> str | None:
    """Return the kind of thing that a parameter of this name may name; None for a plain number."""
    return max((kind for kind in NAMED if param == kind or param.endswith(f"_{kind}")), key=len, default=None)


def check_terms(section: str, kind: str, terms: dict[str, Any]) -> None:
    """Raise ValueError if an entry of a section has an invalid name, or is of another kind."""
    for name, term in terms.items():
        require(str(name).isidentifier(), section, name, "a term's name must be letters, digits and _")
        found = getattr(term, "kind", None)
        require(found == kind, f"{section}.{name}", found or term, f"must be a {kind} term, {kind.capitalize()}(...)")


class _Term:
    """Base of the term entries: a function, its parameters, and a check that they fit.

    A parameter of a kind in :data:`NAMED` may be given by name, which is looked up when the environment is built: a
    ``body`` or ``sensor`` of the compiled model, a ``joint`` of the robot, a ``site`` (or body), an ``object``, an
    ``object_joint`` or a ``contact`` of the task.
    """

    kind = ""
    fn: Any
    params: dict[str, Any]

    def __init__(self, fn: Any, **params: float | str):
        self._bind(fn, params)

    def _bind(self, fn: Any, params: dict[str, Any]) -> None:
        info = term_info(fn)
        if info.kind != self.kind:
            raise ValueError(f"{info.name} is a {info.kind} term and was listed as a {self.kind}")
        if set(params) != set(info.params):
            wanted = ", ".join(info.params) or "none"
            raise ValueError(f"{self.kind} {info.name}: parameters {', '.join(params) or 'none'} given, wants {wanted}")
        self.fn = fn
        self.params = {}
        for name in info.params:
            named = reference_kind(name) is not None and isinstance(params[name], str)
            self.params[name] = params[name] if named else figure(f"{self.kind} {info.name}: {name}", params[name])
        check_ranges(self.params)

    @property
    def named(self) -> tuple[str, ...]:
        """The parameters that may be given as the name of a thing."""
        return tuple(name for name in self.params if reference_kind(name) is not None)

    @property
    def info(self) -> Any:
        """The function's :class:`~robot_rl_envs.terms.TermInfo`."""
        return term_info(self.fn)


class Reward(_Term):
    """A reward term: ``weight * fn(s, i, **params)``, per second.

    Args:
        fn: the term.
        weight: factor of the term's value.
        group: rewards of one group may have their own critic (the learner's ``several_critics``).
        credit: in a team to which robots it goes, one of :data:`.agents.CREDITS`.
        params: parameters of ``fn``.
    """

    kind = "reward"

    def __init__(self, fn: Any, *, weight: float, group: str = "task", credit: str = "robot", **params: float | str):
        self._bind(fn, params)
        self.group = str(group)
        self.weight = figure(f"reward {self.info.name}: weight", weight)
        require(credit in CREDITS, "credit", credit, f"must be one of {', '.join(CREDITS)}")
        self.credit = credit


class Metric(_Term):
    """A quantity that the log averages over all worlds and steps, and that an evaluation measures in each episode.

    A step's value is that after its physics, before a reset: an episode's last step counts.

    Args:
        fn: the term.
        over: the value of an episode in an evaluation: the "mean" of its steps, the value in its last one ("end"), the
            largest ("max") or the smallest ("min").
        after_s: the first seconds of an episode, which do not count in an evaluation.
        unit: SI unit if it is another than the one that ``fn`` declares, e.g. of a joint that slides.
        params: parameters of ``fn``.
    """

    kind = "metric"

    def __init__(self, fn: Any, *, over: str = "mean", after_s: float = 0.0, unit: str = "", **params: float | str):
        self._bind(fn, params)
        require(over in OVER, "over", over, "must be mean, end, max or min")
        self.over = over
        self.after_s = figure(f"metric {self.info.name}: after_s", after_s)
        require(self.after_s >= 0, "after_s", after_s, "must be >= 0")
        self.unit = unit or self.info.unit


class Termination(_Term):
    """A condition that ends an episode.

    Args:
        fn: the term.
        time_out: the end is not the policy's fault: it counts as a time-out, after which the critic estimates the rest.
        scope: in a team whose episode ends: "team", that of all robots, "robot" only that of the one for which it
            holds, which drops out while the others continue.
        params: parameters of ``fn``.
    """

    kind = "termination"

    def __init__(self, fn: Any, *, time_out: bool = False, scope: str = "team", **params: float | str):
        self._bind(fn, params)
        self.time_out = bool(time_out)
        require(scope in SCOPES, "scope", scope, f"must be {' or '.join(SCOPES)}")
        require(scope == "team" or not self.time_out, "scope", scope, "a time-out is of the whole team")
        self.scope = scope


class Observation(_Term):
    """An observation term: the value of ``fn`` as a sensor delivers it to the policy.

    In order: value, + bias (+ drift), + noise, delay, dropout, clip, scale, history. In a group with ``noise=False``
    the first five are off. All but ``history``, ``delay_steps`` and ``noise_kind`` are live parameters.

    Args:
        fn: the term.
        noise: bound of uniform noise, or standard deviation of gaussian noise, of each element in each step.
        scale: factor, applied after the clip.
        clip: bound on the value's magnitude.
        history: number of values the policy sees, oldest first.
        options: the attributes below; the others are parameters of ``fn``.

    Attributes:
        noise_kind: "uniform" or "gaussian".
        bias: each element's own offset, drawn in +-bias at every reset.
        drift: its random walk per sqrt(second).
        delay_s: (lo, hi) [s]: drawn by each world at every reset and rounded to control steps.
        delay_steps: control steps kept for the delay; 0: enough for hi.
        dropout: the probability that a step's value is lost and the last one that arrived is repeated.
        measured: for a value that only a simulator knows, the name under which something on or around the real robot
            measures it, such as a camera's object detector: a robot delivers it as signal ``measured/<name>``.
    """

    kind = "observation"
    noise_kind: str
    bias: float
    drift: float
    delay_s: tuple[float, float]
    delay_steps: int
    dropout: float
    measured: str

    def __init__(
        self, fn: Any, *, noise: float = 0.0, scale: float = 1.0, clip: float = CLIP, history: int = 1, **options: Any
    ):
        pipeline = check_options({name: options.pop(name) for name in OPTIONS if name in options})
        self._bind(fn, options)
        require(noise >= 0, "noise", noise, "must be >= 0")
        require(clip > 0, "clip", clip, "must be > 0")
        require(is_whole(history, 1, 100), "history", history, "must be an int in [1, 100]")
        if pipeline["measured"] and self.info.signal is not None:
            line = f"{self.info.name} already is the robot's own {self.info.signal}; omit it"
            raise ValueError(f"measured={pipeline['measured']!r}: {line}")
        self.noise, self.scale, self.clip, self.history = float(noise), float(scale), float(clip), history
        for name, value in pipeline.items():
            setattr(self, name, value)

    @property
    def message_param(self) -> str:
        """The parameter that names the message which the term receives; empty for another term."""
        return next((param for param in self.params if reference_kind(param) == "message"), "")

    def changed(self, names: tuple[str, ...]) -> list[str]:
        """Return those of these options that are not at their defaults."""
        plain = OPTIONS | {"noise": 0.0, "scale": 1.0, "clip": CLIP, "history": 1}
        return [name for name in names if getattr(self, name) != plain[name]]


class Command(_Term):
    """A command, drawn at each reset and again from time to time.

    Args:
        fn: the term.
        resample_s: (lo, hi) time until it is drawn again [s].
        team: in a team all robots get the same.
        params: parameters of ``fn``.
    """

    kind = "command"

    def __init__(
        self, fn: Any, *, resample_s: tuple[float, float] = (10.0, 10.0), team: bool = False, **params: float | str
    ):
        self._bind(fn, params)
        self.team = bool(team)
        lo, hi = resample_s
        require(0 < lo <= hi, "resample_s", resample_s, "must be (lo, hi) with 0 < lo <= hi")
        self.resample_s = (float(lo), float(hi))


class Curriculum(_Term):
    """What changes for a world between episodes: its terrain's level, its commands' range."""

    kind = "curriculum"


class Event(_Term):
    """Something that happens to a world.

    Args:
        fn: the term.
        mode: when it happens: at "startup", at each "reset", or at each "interval".
        interval_s: (lo, hi) length of an interval [s].
        team: in a team it happens to all robots in the same way, as a draw of an object must; without, to each robot
            by itself.
        params: parameters of ``fn``.
    """

    kind = "event"

    def __init__(
        self,
        fn: Any,
        *,
        mode: str = "reset",
        interval_s: tuple[float, float] = (8.0, 12.0),
        team: bool = False,
        **params: float | str,
    ):
        self._bind(fn, params)
        self.team = bool(team)
        modes = self.info.modes
        *first, last = modes
        right = f"{', '.join(first)} or {last}" if first else last
        require(mode in modes, "mode", mode, f"must be {right} for {self.info.name}")
        lo, hi = interval_s
        require(0 < lo <= hi, "interval_s", interval_s, "must be (lo, hi) with 0 < lo <= hi")
        self.mode, self.interval_s = mode, (float(lo), float(hi))


class MeasuredEvent(Event):
    """An event that draws around measured values: these are the settings, it is not."""

    setting = False


@dataclass(kw_only=True, slots=True)
class TorchTerm:
    """A reward, observation or termination as a torch function over the whole batch, outside the kernels.

    Attributes:
        kind: "reward", "observation" or "termination".
        fn: ``fn(state) -> Tensor``; ``state`` is ``Env.state``. Shape (N,) for rewards and terminations, (N, size)
            for observations.
        size: width of an observation.
        time_out: for a termination.
        group: group of a reward, as in :class:`Reward`.
    """

    kind: str
    fn: Callable[[Any], Any]
    weight: float = 1.0
    size: int = 1
    time_out: bool = False
    group: str = "task"

    def __post_init__(self) -> None:
        require(self.kind in ("reward", "observation", "termination"), "TorchTerm.kind", self.kind, "unknown")
        require(self.size >= 1, "TorchTerm.size", self.size, "must be >= 1")
