"""Code of one's own that settings name as "module:name"."""

from __future__ import annotations

import importlib
from typing import Any

from robot_rl.errors import UserError


def load_object(name: str, what: str) -> Any:
    """Import what "module:name" names.

    Args:
        name: the module and the attribute in it, such as my_package.losses:Smoothness.
        what: the setting with its value, which begins the messages.

    Raises:
        UserError: it is no such name, or cannot be imported.
    """
    module, _, attribute = name.partition(":")
    if not (module and attribute):
        raise UserError(f"{what}: must be module:name, such as my_package.my_module:Mine")
    try:
        return getattr(importlib.import_module(module), attribute)
    except Exception as error:  # Anything may happen while somebody's module is imported.
        raise UserError(f"{what}: cannot be imported, {type(error).__name__}: {error}") from error
