"""Files that users write, a task's or a robot's: an error in one is a line that names the file and its line."""

import importlib
import traceback
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any


def run(what: str, module: str, use: Callable[[ModuleType], Any]) -> Any:
    """Import a module that a user wrote and return what ``use`` makes of it.

    Args:
        what: the beginning of the line, such as "task=go2_crouch".
        module: the module's full name.
        use: takes the required object from the module.

    Raises:
        ValueError: the module, or code that it calls, raised; the line names the file and the line in it.
    """
    try:
        return use(importlib.import_module(module))
    except Exception as error:  # anything that a user's file raises
        folder = "/" + "/".join(module.split(".")[:2]) + "/"
        frames = [
            frame for frame in traceback.extract_tb(error.__traceback__) if folder in Path(frame.filename).as_posix()
        ]
        place = f"{frames[-1].filename}:{frames[-1].lineno}: " if frames else ""
        if isinstance(error, SyntaxError) and error.filename:
            place = f"{error.filename}:{error.lineno}: "
        text = error.msg if isinstance(error, SyntaxError) else " ".join(str(error).split())
        kind = "" if type(error) is ValueError else f"{type(error).__name__}: "
        raise ValueError(f"{what}: {place}{kind}{text}") from None
