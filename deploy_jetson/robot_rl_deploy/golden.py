"""The golden sequence: raw robot states, and the observation, action and target that each must give.

Arrays over `steps` control steps, float32 but for the resets: every needed signal under its name (steps, size), "reset"
(steps,) bool: the policy is reset before this step, "observation" (steps, observation_size), "action" and
"joint_target" (steps, action_size); of a policy with a precision also "action_bound" (steps,). The last action in an
observation is that of the sequence, so that rounding errors of one step do not propagate to the next.
"""

import io
import struct
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from robot_rl_deploy.contract import Contract
from robot_rl_deploy.forced import check_coverage
from robot_rl_deploy.observe import needed_signals
from robot_rl_deploy.strict import ContractError
from robot_rl_deploy.terms import current_name

MIN_STEPS = 200
OBSERVATION_TOLERANCE = 1e-6
ACTION_TOLERANCE = 1e-4
END = struct.Struct("<4s4H2LH")
"""End of a ZIP file's list of parts: signature, four counts, the list's size and place, the length of a comment."""

Array = NDArray[np.float32]


@dataclass(frozen=True, slots=True, kw_only=True)
class Golden:
    """A recorded sequence; see the module.

    Attributes:
        signals: Name -> raw signal (steps, size).
        reset: Whether the policy is reset before the step (steps,).
        observation: (steps, observation_size).
        action: (steps, action_size).
        joint_target: (steps, action_size) [rad or m; N m or N for efforts].
        action_bound: How far rounding in another order may move an action of the step (steps,); None in fp32.
    """

    signals: Mapping[str, Array]
    reset: NDArray[np.bool_]
    observation: Array
    action: Array
    joint_target: Array
    action_bound: Array | None = None

    def check(self, contract: Contract) -> None:
        """Refuse a sequence that does not fit a contract.

        Raises:
            ContractError: An array is missing, extra, of another type, shape or length, or not finite; the sequence is
                too short, is without a reset inside, or does not contain what `robot_rl_deploy.forced` adds.
        """
        steps = len(self.reset) if np.ndim(self.reset) == 1 else 0
        sizes = contract.signal_sizes()
        needed = needed_signals(contract)
        if set(self.signals) != set(needed):
            odd = ", ".join(sorted(set(self.signals) ^ set(needed)))
            raise ContractError(f"golden.npz: the signals do not fit the contract, see {odd}; export the bundle again")
        wanted = {name: sizes[name] for name in needed} | {
            "observation": contract.layout.observation_size,
            "action": contract.layout.action_size,
            "joint_target": contract.layout.action_size,
        }
        for name, size in wanted.items():
            array = self.signals[name] if name in self.signals else getattr(self, name)
            if array.dtype != np.float32 or array.shape != (steps, size):
                raise ContractError(
                    f"golden.npz: {name} is {array.dtype} {array.shape}; it must be float32 {(steps, size)}"
                )
            if not np.isfinite(array).all():
                raise ContractError(f"golden.npz: {name} contains numbers that are not finite; export the bundle again")
        if self.reset.dtype != np.bool_ or steps < MIN_STEPS:
            raise ContractError(
                f"golden.npz: reset is {self.reset.dtype} of {steps} steps; at least {MIN_STEPS} of bool"
            )
        if not self.reset[0] or not self.reset[1:].any():
            raise ContractError("golden.npz: reset must be set at the first step and at least once inside")
        check_coverage(contract, self.signals)
        self._check_bound(contract)

    def _check_bound(self, contract: Contract) -> None:
        """Refuse other bounds of the steps than those of the contract's precision."""
        given, steps = self.action_bound, len(self.reset)
        if (given is None) != (contract.precision is None):
            odd = "is missing" if given is None else f"is there, for a policy in {contract.mode}"
            raise ContractError(f"golden.npz: action_bound {odd}; export the bundle again")
        if given is None or contract.precision is None:
            return
        if given.dtype != np.float32 or given.shape != (steps,):
            raise ContractError(
                f"golden.npz: action_bound is {given.dtype} {given.shape}; it must be float32 ({steps},)"
            )
        most = np.float32(contract.precision.action_bound)
        if not ((given > 0) & (given <= most)).all():  # a NaN is also wrong
            raise ContractError(f"golden.npz: action_bound must be in (0, {most:g}], the contract's; export it again")

    def dumps(self) -> bytes:
        """Write the arrays, not compressed, so that a small reader can map them."""
        stream = io.BytesIO()
        arrays: dict[str, Any] = {name: np.ascontiguousarray(array) for name, array in self.signals.items()}
        arrays |= {name: getattr(self, name) for name in ("reset", "observation", "action", "joint_target")}
        if self.action_bound is not None:
            arrays["action_bound"] = self.action_bound
        np.savez(stream, allow_pickle=False, **arrays)
        return stream.getvalue()


def loads(data: bytes, contract: Contract) -> Golden:
    """Read and check a sequence.

    Args:
        data: Content of golden.npz.
        contract: What it must fit.

    Returns:
        The sequence.

    Raises:
        ContractError: It cannot be read or does not fit.
    """
    try:
        arrays = _read_arrays(data)
        fields = {name: arrays.pop(name) for name in ("reset", "observation", "action", "joint_target")}
    except ContractError:
        raise
    except Exception as error:  # those of zip, of compression and of the arrays' headers share no other base
        raise ContractError(f"golden.npz cannot be read ({error}); export the bundle again") from None
    bound = arrays.pop("action_bound", None)
    signals = {current_name(name): array for name, array in arrays.items()}
    golden = Golden(action_bound=bound, signals=signals, **fields)
    golden.check(contract)
    return golden


def _read_arrays(data: bytes) -> dict[str, NDArray[Any]]:
    _check_frame(data)
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        # Check sizes before anything is unpacked: a small file may contain a large one.
        if packed := [item.filename for item in archive.infolist() if item.compress_type != zipfile.ZIP_STORED]:
            raise ContractError(f"golden.npz cannot be read ('{packed[0]}' is compressed); export the bundle again")
        if sum(item.file_size for item in archive.infolist()) > 2 * len(data) or archive.testzip():
            raise ContractError("golden.npz is damaged; export the bundle again")
        for item in archive.infolist():
            with archive.open(item) as stream:
                _check_header(stream, item.filename)
    with np.load(io.BytesIO(data), allow_pickle=False) as stored:
        arrays = {name: stored[name] for name in stored.files}
        for name, array in arrays.items():
            if stored.files.count(name) > 1 or not isinstance(array, np.ndarray):
                raise ContractError(f"golden.npz: '{name}' is not an array, or there are two; export the bundle again")
    return arrays


def _check_frame(data: bytes) -> None:
    """Refuse bytes before or after the archive, in which another reader could find other parts."""
    if len(data) < END.size or data[-END.size :][:4] != b"PK\x05\x06":
        raise ContractError("golden.npz cannot be read (not a ZIP file, truncated or trailing data); export it again")
    size, offset = END.unpack(data[-END.size :])[5:7]
    if size + offset != len(data) - END.size:
        raise ContractError("golden.npz cannot be read (its list of parts is wrong); export the bundle again")


def _check_header(stream: IO[bytes], name: str) -> None:
    """Refuse an array that is not as NumPy writes one by itself: version 1.0, C order."""
    if (version := np.lib.format.read_magic(stream)) != (1, 0):
        raise ContractError(f"golden.npz: '{name}' is of version {version} of .npy; export the bundle again")
    shape, is_fortran, _ = np.lib.format.read_array_header_1_0(stream)
    if is_fortran and len(shape) > 1:
        raise ContractError(f"golden.npz cannot be read ('{name}' is in Fortran order); export the bundle again")
