"""Conversion of a policy of mjlab's to a bundle: its network with the bundle's names, and a golden sequence."""

import hashlib
from collections.abc import Mapping
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from robot_rl_deploy import contract as contract_module
from robot_rl_deploy.contract import Contract
from robot_rl_deploy.export import write_bundle
from robot_rl_deploy.forced import forced_states
from robot_rl_deploy.golden import Golden
from robot_rl_deploy.mjlab import LARGEST, RobotFacts, make_contract, read_metadata
from robot_rl_deploy.observe import Observer, needed_signals
from robot_rl_deploy.replay import apply_actions
from robot_rl_deploy.session import INPUT, OUTPUTS, open_network
from robot_rl_deploy.verify import BundleReport

STEPS = 256
"""Length of the golden sequence."""

Array = NDArray[np.float32]


def import_bundle(model: bytes, facts: RobotFacts, out: Path, *, seed: int = 0) -> BundleReport:
    """Write the bundle of a policy of mjlab's and check it.

    A golden sequence cannot be recorded without a simulation, so its states are drawn at random within the limits; the
    actions are those of the network as mjlab wrote it.

    Args:
        model: mjlab's ONNX file.
        facts: Facts that it does not contain.
        out: Directory of the bundle.
        seed: Of the golden sequence.

    Returns:
        The report of the check.

    Raises:
        ContractError: The policy cannot be described, or the bundle fails its own check.
        OSError: It cannot be written; the content of `out` is unchanged.
    """
    contract = make_contract(read_metadata(model), facts)
    golden = make_golden(model, contract, seed)
    text = contract_module.dumps(contract).encode()
    network = convert(model, contract, {"contract_sha256": hashlib.sha256(text).hexdigest()})
    return write_bundle(out, text, golden, network)


def convert(model: bytes, contract: Contract, metadata: Mapping[str, str]) -> bytes:
    """Make the network of a bundle: a free batch size, the bundle's names, clip and targets of the actions inside.

    Args:
        model: mjlab's ONNX file.
        contract: Gives clip, scale and offset.
        metadata: Texts to store in the file.

    Returns:
        The file's content.
    """
    import onnx
    from onnx import compose, helper, numpy_helper

    proto = compose.add_prefix(onnx.load_model_from_string(model), "policy/")
    graph = proto.graph
    weights = {tensor.name for tensor in graph.initializer}
    (source,) = (node.name for node in graph.input if node.name not in weights)
    (sink,) = (node.name for node in graph.output)
    names = {source: INPUT, sink: "raw_action"}
    for node in graph.node:
        node.input[:] = [names.get(name, name) for name in node.input]
        node.output[:] = [names.get(name, name) for name in node.output]
    bound = [LARGEST if spec.clip is None else spec.clip for spec in contract.actions]
    tables = {
        "low": [-value for value in bound],  # the largest float without a clip
        "high": bound,
        "scale": [spec.scale for spec in contract.actions],
        "offset": [spec.offset for spec in contract.actions],
    }
    graph.initializer.extend(numpy_helper.from_array(np.array(v, np.float32), name) for name, v in tables.items())
    action, target = OUTPUTS
    graph.node.extend(
        [
            helper.make_node("Max", ["raw_action", "low"], ["not_below"], name="not_below"),
            helper.make_node("Min", ["not_below", "high"], [action], name="action"),
            helper.make_node("Mul", [action, "scale"], ["scaled"], name="scaled"),
            helper.make_node("Add", ["scaled", "offset"], [target], name="joint_target"),
        ]
    )
    widths = {INPUT: contract.layout.observation_size} | dict.fromkeys(OUTPUTS, contract.layout.action_size)
    values = [helper.make_tensor_value_info(n, onnx.TensorProto.FLOAT, ["batch", w]) for n, w in widths.items()]
    for field_name, nodes in (("input", values[:1]), ("output", values[1:]), ("value_info", [])):
        graph.ClearField(field_name)
        getattr(graph, field_name).extend(nodes)
    proto.ClearField("metadata_props")
    helper.set_model_props(proto, dict(metadata))
    onnx.checker.check_model(proto)
    return proto.SerializeToString(deterministic=True)


def make_golden(model: bytes, contract: Contract, seed: int = 0) -> Golden:
    """Draw raw robot states and record the results of mjlab's network.

    Args:
        model: mjlab's ONNX file.
        contract: The policy's.
        seed: Of the states.
    """
    session = open_network(model)
    (name,) = (node.name for node in session.get_inputs())
    bound = np.array([np.inf if spec.clip is None else spec.clip for spec in contract.actions], np.float32)
    states = random_states(contract, STEPS, seed)
    reset = np.zeros(STEPS, bool)
    forced = forced_states(contract)
    for signal, values in forced.items():
        states[signal][-len(values) :] = values
    reset[[0, STEPS // 2, -len(next(iter(forced.values()))) if forced else 0]] = True
    observer, observations, actions = Observer(contract), [], []
    for step in range(STEPS):
        if reset[step]:
            observer.reset()
        observation = observer.observe({signal: values[step] for signal, values in states.items()})
        (raw,) = session.run(None, {name: observation})
        action = np.clip(np.asarray(raw, np.float32).reshape(1, -1), -bound, bound)
        observer.last_action[:] = action
        observations.append(observation[0])
        actions.append(action[0])
    action = np.stack(actions)
    golden = Golden(
        signals=states,
        reset=reset,
        observation=np.stack(observations),
        action=action,
        joint_target=apply_actions(contract, action, np.stack(observations)),
    )
    golden.check(contract)
    return golden


def random_states(contract: Contract, steps: int, seed: int = 0) -> dict[str, Array]:
    """Draw raw robot states that wander smoothly around the default pose.

    Args:
        contract: Which signals are needed, limits and ranges.
        steps: Control steps.
        seed: Of the draw.

    Returns:
        Signal -> values (steps, size).
    """
    rng = np.random.default_rng(seed)

    def wander(width: int, spread: float) -> NDArray[np.float64]:
        """Noise with a memory of ten steps (steps, width), of standard deviation `spread`."""
        value, rows = rng.normal(size=width), []
        for _ in range(steps):
            rows.append(value)
            value = 0.9 * value + np.sqrt(1 - 0.9**2) * rng.normal(size=width)
        return spread * np.stack(rows)

    count = len(contract.joints)
    low, high = (
        np.array([default if limit is None else limit for limit, default in pairs])
        for pairs in (
            [(joint.lower, -np.inf) for joint in contract.joints],
            [(joint.upper, np.inf) for joint in contract.joints],
        )
    )
    position = np.clip(np.array([joint.default_pos for joint in contract.joints]) + wander(count, 0.2), low, high)
    quat = np.array([1.0, 0, 0, 0]) + wander(4, 0.15)
    lower, upper = (np.array([getattr(item, side) for item in contract.command]) for side in ("lower", "upper"))
    command = np.repeat(rng.uniform(lower, upper, ((steps + 49) // 50, len(lower))), 50, axis=0)[:steps]
    signals = {
        "joint_pos": position,
        "joint_vel": wander(count, 1.5),
        "imu_gyro": wander(3, 0.7),
        "imu_quat_wxyz": quat / np.linalg.norm(quat, axis=1, keepdims=True),
        "command": command,
    }
    return {name: signals[name].astype(np.float32) for name in needed_signals(contract)}
