"""Record the golden sequence from an environment, with the torch policy as the reference."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from numpy.typing import NDArray

from robot_rl_deploy.contract import Contract, TrainingSpec
from robot_rl_deploy.describe import make_contract
from robot_rl_deploy.forced import forced_states
from robot_rl_deploy.golden import MIN_STEPS, Golden
from robot_rl_deploy.observe import Observer, needed_signals
from robot_rl_deploy.replay import apply_actions

if TYPE_CHECKING:
    import torch

Array = NDArray[np.float32]


class ExportableActor(Protocol):
    """A trained actor."""

    def export_module(self) -> "torch.nn.Module":
        """Return a module from raw observations (N, observation_size) to mean actions (N, action_size).

        One with a memory has a `state_size`, also takes the state (N, state_size) and returns the next one.
        """
        ...


def record_golden(env: Any, actor: ExportableActor, steps: int = 256) -> Golden:
    """Run the policy in an environment and record the observations and actions of its first world.

    The observations are built from the raw robot state as the runtime does it; the environment is reset halfway and
    when its episode ends. The last steps are those of `forced_states`, which the environment does not see.

    Args:
        env: The environment, with `describe_policy()` and `robot_state()`; it is reset and stepped.
        actor: The actor.
        steps: Control steps, at least 200.

    Returns:
        The sequence.

    Raises:
        ContractError: The description is wrong, or the policy reads values that no robot can measure.
        ValueError: Too few steps.
    """
    import torch

    if steps < MIN_STEPS:
        raise ValueError(f"steps is {steps}; a golden sequence has at least {MIN_STEPS}")
    training = TrainingSpec(run_id="recording", task="recording", git_commit="unknown", iteration=0)
    contract = make_contract(env.describe_policy(), training)
    module = actor.export_module().to("cpu").eval()
    rows: dict[str, list[NDArray[Any]]] = {}
    recorder = _Recorder(contract, module, env.num_envs, rows)
    forced = forced_states(contract)
    count = len(next(iter(forced.values()), ()))
    done = np.ones(env.num_envs, bool)
    env.reset()
    for step in range(steps - count):
        if step == steps // 2:
            env.reset()
            done[:] = True
        state = {name: env.robot_state()[name].detach().cpu().numpy().copy() for name in needed_signals(contract)}
        action = recorder.act(state, done)
        done = env.step(torch.from_numpy(action).to(env.device))[2].bool().cpu().numpy()
    recorder = _Recorder(contract, module, 1, rows)
    for step in range(count):
        recorder.act({name: values[step : step + 1] for name, values in forced.items()}, np.array([step == 0]))
    return _make_golden(contract, rows)


class _Recorder:
    """Observes and acts in several worlds, and records the rows of the first one."""

    def __init__(
        self, contract: Contract, module: "torch.nn.Module", num_envs: int, rows: dict[str, list[NDArray[Any]]]
    ) -> None:
        import torch

        self._contract, self._module, self._rows = contract, module, rows
        self._observer = Observer(contract, num_envs)
        self._memory = torch.zeros(num_envs, state_size(module))

    def act(self, state: Mapping[str, Array], reset: NDArray[np.bool_]) -> Array:
        import torch

        self._observer.reset(reset)
        self._memory[torch.from_numpy(reset)] = 0.0
        observation = self._observer.observe(state)
        with torch.no_grad():
            seen = torch.from_numpy(observation)
            if self._memory.shape[1]:
                raw, self._memory = self._module(seen, self._memory)
            else:
                raw = self._module(seen)
        action = _clip(self._contract, raw.numpy())
        row = {name: signal[0] for name, signal in state.items()}
        row |= {"observation": observation[0], "action": action[0], "reset": reset[0]}
        for name, value in row.items():
            self._rows.setdefault(name, []).append(np.array(value))
        self._observer.last_action[:] = action
        return action


def state_size(module: "torch.nn.Module") -> int:
    """Return the width of an exported policy's state; 0 without a memory."""
    return int(getattr(module, "state_size", 0))


def _clip(contract: Contract, action: Array) -> Array:
    bound = np.array([np.inf if spec.clip is None else spec.clip for spec in contract.actions], np.float32)
    return np.clip(action, -bound, bound)


def _make_golden(contract: Contract, rows: dict[str, list[NDArray[Any]]]) -> Golden:
    action, observation = np.stack(rows["action"]), np.stack(rows["observation"])
    golden = Golden(
        signals={name: np.stack(rows[name]).astype(np.float32) for name in needed_signals(contract)},
        reset=np.stack(rows["reset"]),
        observation=observation,
        action=action,
        joint_target=apply_actions(contract, action, observation),
    )
    golden.check(contract)
    return golden
