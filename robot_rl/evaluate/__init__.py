"""Evaluation of a trained policy: the torch module, and its bundle run by ONNX Runtime from raw robot state."""

from robot_rl.evaluate.rollout import EVALUATION_SEED, evaluate, evaluate_run, evaluation_task, write_evaluation

__all__ = ["EVALUATION_SEED", "evaluate", "evaluate_run", "evaluation_task", "write_evaluation"]
