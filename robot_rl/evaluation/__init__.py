"""Evaluation of a trained policy: the torch module, and its bundle run by ONNX Runtime from raw robot state."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from robot_rl.evaluation.rollout import EVALUATION_SEED, evaluate, evaluate_run, evaluation_task, write_evaluation

__all__ = ["EVALUATION_SEED", "evaluate", "evaluate_run", "evaluation_task", "write_evaluation"]


def __getattr__(name: str) -> Any:
    """Return one of the names above: the module that has them imports PyTorch, which finding a policy does not need."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from robot_rl.evaluation import rollout

    return getattr(rollout, name)
