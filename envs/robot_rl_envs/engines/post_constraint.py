"""``mj_rnePostConstraint`` after every physics step of a ``mujoco.batch.Batch``.

MuJoCo does not compute ``cfrc_ext`` unless a sensor needs it, and then, with the Runge-Kutta integrator, at the first
of the step's four stages. Code that steps an ``MjData`` calls the function after ``mj_step``; a batch does not allow
that. An engine plugin does: its ``advance`` runs at the end of each physics step, when the last stage's contacts are
still valid, on the thread that steps the world, with the arguments of ``mj_rnePostConstraint``. So MuJoCo's own
function is registered as the ``advance`` of a plugin that does nothing else.

``cfrc_ext`` is then the same as after a call by hand, to the last bit. ``cacc`` and ``cfrc_int``, which the function
also fills, are not: they depend on the velocity, which is not advanced yet.
"""

from __future__ import annotations

import ctypes
import re
from functools import cache
from pathlib import Path
from typing import Any

NAME = "robot_rl.post_constraint"

_HEAD: list[tuple[str, Any]] = [
    ("name", ctypes.c_char_p),
    ("nattribute", ctypes.c_int),
    ("attributes", ctypes.c_void_p),
    ("capabilityflags", ctypes.c_int),
    ("needstage", ctypes.c_int),
]
_FUNCTIONS = ("nstate", "nsensordata", "init", "destroy", "copy", "reset", "compute", "advance", "visualize")
_FUNCTIONS += ("actuator_act_dot", "sdf_distance", "sdf_gradient", "sdf_staticdistance", "sdf_attribute", "sdf_aabb")


class _Plugin(ctypes.Structure):
    """``mjpPlugin`` of MuJoCo's header mjplugin.h."""

    _fields_ = _HEAD + [(name, ctypes.c_void_p) for name in _FUNCTIONS]


def plugin_fields(header: str) -> list[str]:
    """Return the names of the fields of ``mjpPlugin`` in the text of mjplugin.h; empty without such a struct."""
    found = re.search(r"typedef struct mjpPlugin_ \{(.*?)\} mjpPlugin;", header, re.DOTALL)
    if found is None:
        return []
    text = re.sub(r"//[^\n]*", "", found[1])
    lines = [line.strip() for line in text.split(";") if line.strip()]
    return [(re.search(r"\(\*(\w+)\)", line) or re.search(r"(\w+)$", line) or [line, line])[1] for line in lines]


def add_post_constraint(spec: Any) -> None:
    """Add the plugin to a ``mujoco.MjSpec``.

    Raises:
        ValueError: this MuJoCo's plugin interface is not the known one.
    """
    _register()
    spec.activate_plugin(NAME)
    instance = spec.add_plugin(name="post_constraint", plugin_name=NAME)
    instance.active = True


@cache
def _register() -> tuple[Any, ...]:
    """Register the plugin once a process; the result must stay alive."""
    import mujoco

    folder = Path(mujoco.__file__).parent
    header = folder / "include" / "mujoco" / "mjplugin.h"
    libraries = sorted(folder.glob("*mujoco*.so*")) + sorted(folder.glob("libmujoco*.dylib"))
    known = [*(name for name, _ in _HEAD), *_FUNCTIONS]
    if not libraries or not header.is_file() or plugin_fields(header.read_text()) != known:
        raise ValueError(
            f"engine='mujoco': the plugin interface of mujoco {mujoco.__version__} is not the one known here, so "
            "cfrc_ext cannot be had; install mujoco 4.0.0 or remove the terms that read it"
        )
    library = ctypes.CDLL(str(libraries[0]))
    pointer, integer = ctypes.c_void_p, ctypes.c_int
    # Called when an MjData is made or reset, never in a step.
    none = ctypes.CFUNCTYPE(integer, pointer, integer)(lambda model, instance: 0)
    init = ctypes.CFUNCTYPE(integer, pointer, pointer, integer)(lambda model, data, instance: 0)
    reset = ctypes.CFUNCTYPE(None, pointer, pointer, pointer, integer)(lambda model, state, data, instance: None)
    compute = ctypes.CFUNCTYPE(None, pointer, pointer, integer, integer)(lambda model, data, instance, what: None)
    plugin = _Plugin(name=NAME.encode())
    functions: dict[str, Any] = {"nstate": none, "init": init, "reset": reset, "compute": compute}
    functions["advance"] = library.mj_rnePostConstraint
    for name, function in functions.items():
        setattr(plugin, name, ctypes.cast(function, pointer).value)
    library.mjp_registerPlugin.argtypes = [ctypes.POINTER(_Plugin)]
    library.mjp_registerPlugin.restype = integer
    if library.mjp_registerPlugin(ctypes.byref(plugin)) < 0:
        raise ValueError(f"engine='mujoco': mujoco {mujoco.__version__} did not take the plugin {NAME}")
    return library, plugin, tuple(functions.values())
