"""The type of ``s`` in a term. state.pyi lists its fields for editors; the real one is a Warp struct of each task."""

from typing import Any

State = Any
