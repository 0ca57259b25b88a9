"""Check that an environment of Isaac Lab observes what its description says, before a robot relies on it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from robot_rl.errors import UserError

if TYPE_CHECKING:
    from robot_rl.sources.isaaclab.adapter import IsaacEnv

STEPS = 30
TOLERANCE = 1e-4
"""Largest difference, in parts of 1 or of the value where that is larger: float32, and sums in another order."""


def check_observations(env: IsaacEnv, training: Any) -> None:
    """Compare the observations of the environment with those that its description computes from the robot's state.

    Args:
        env: The environment, without noise and delay; it is reset and stepped.
        training: The policy's origin, for the contract.

    Raises:
        UserError: They differ; the line names the term and by how much.
        ContractError: The policy reads what no robot can measure.
    """
    from robot_rl_deploy.describe import make_contract
    from robot_rl_deploy.observe import Observer, needed_signals

    contract = make_contract(env.describe_policy(), training)
    observer, generator = Observer(contract, env.num_envs), torch.Generator().manual_seed(0)
    obs, done = env.reset(), np.ones(env.num_envs, bool)
    for step in range(STEPS):
        observer.reset(done)
        state = env.robot_state()
        signals = {name: state[name].detach().cpu().numpy() for name in needed_signals(contract)}
        built = observer.observe(signals)
        given = torch.cat([obs[group] for group in env.policy_groups], dim=-1).cpu().numpy()
        if given.shape != built.shape:
            raise UserError(
                f"export: {env.name} observes {given.shape[1]} values, its terms add up to {built.shape[1]}"
            )
        _compare(env.name, contract, given, built, step)
        actions = 0.3 * torch.randn(env.num_envs, env.num_actions, generator=generator)
        if env.action_clip is not None:
            actions = actions.clamp(-env.action_clip, env.action_clip)
        observer.last_action[:] = actions.numpy()
        obs, _, ended, _ = env.step(actions)
        done = ended.cpu().numpy()


def _compare(name: str, contract: Any, given: np.ndarray, built: np.ndarray, step: int) -> None:
    wrong = np.abs(given - built) / np.maximum(1.0, np.abs(given))
    if wrong.max() <= TOLERANCE:
        return
    column, start = int(wrong.max(axis=0).argmax()), 0
    for term in contract.observations:
        if column < start + term.size * term.history:
            raise UserError(
                f"export: observation '{term.name}' of {name} is {given[:, column].max():.6g} where its description "
                f"makes {built[:, column].max():.6g} of the robot's state (step {step}, component {column - start})"
            )
        start += term.size * term.history
