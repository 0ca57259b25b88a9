"""Damaged and forged bundles: each must be refused before a robot moves, by the check and by every start.

Where the damage is not in the hashes, hashes and the network's copy of the contract's hash are forged as well, so that
the checks behind them have to find it.
"""

import hashlib
import json
import shutil

import numpy as np
import onnx
import pytest
from robot_rl_deploy.bundle import read_bundle, write_sums
from robot_rl_deploy.policy import BundlePolicy
from robot_rl_deploy.strict import ContractError
from robot_rl_deploy.verify import verify_bundle


def edit_contract(change):
    def mutate(bundle):
        path = bundle / "contract.json"
        data = json.loads(path.read_text())
        change(data)
        path.write_text(json.dumps(data))
        forge(bundle)

    return mutate


def edit_golden(change):
    def mutate(bundle):
        with np.load(bundle / "golden.npz") as stored:
            arrays = dict(stored)
        change(arrays)
        np.savez(bundle / "golden.npz", **arrays)
        write_sums(bundle)

    return mutate


def edit_model(change):
    def mutate(bundle):
        model = onnx.load(bundle / "policy.onnx")
        change(model)
        (bundle / "policy.onnx").write_bytes(model.SerializeToString())
        write_sums(bundle)

    return mutate


def forge(bundle):
    model = onnx.load(bundle / "policy.onnx")
    digest = hashlib.sha256((bundle / "contract.json").read_bytes()).hexdigest()
    onnx.helper.set_model_props(model, {"contract_sha256": digest})
    (bundle / "policy.onnx").write_bytes(model.SerializeToString())
    write_sums(bundle)


def swap(data, key, i, j):
    data[key][i], data[key][j] = data[key][j], data[key][i]


def put(*path, value):
    def change(data):
        place = data
        for key in path[:-1]:
            place = place[key]
        place[path[-1]] = value

    return edit_contract(change)


def weight(model, index=0):
    """The largest initializers are the weights."""
    tensors = sorted(model.graph.initializer, key=lambda tensor: -len(tensor.raw_data))
    return tensors[index]


def set_weight(change):
    def apply(model):
        tensor = weight(model)
        values = onnx.numpy_helper.to_array(tensor).copy()
        change(values)
        tensor.CopyFrom(onnx.numpy_helper.from_array(values, tensor.name))

    return edit_model(apply)


def external(model):
    tensor = weight(model)
    tensor.ClearField("raw_data")
    tensor.data_location = onnx.TensorProto.EXTERNAL
    tensor.external_data.add(key="location", value="weights.bin")


def own_operators(model):
    model.opset_import.add(domain="com.example", version=1)


def link(bundle):
    target = bundle.parent / "elsewhere.onnx"
    (bundle / "policy.onnx").rename(target)
    (bundle / "policy.onnx").symlink_to(target)


def raw(name, change):
    def mutate(bundle):
        path = bundle / name
        path.write_bytes(change(path.read_bytes()))

    return mutate


def rehashed(name, change):
    def mutate(bundle):
        raw(name, change)(bundle)
        write_sums(bundle)

    return mutate


def first_value(values, value):
    values[0, 0] = value


def put_at(values, index, value):
    values[index] = value


def scale(key, by):
    def change(arrays):
        arrays[key] = arrays[key] * np.float32(by)

    return edit_golden(change)


def cut(arrays):
    for name in arrays:
        arrays[name] = arrays[name][:150]


def reverse(arrays):
    arrays["observation"][:, 15:24] = arrays["observation"][:, 15:24].reshape(-1, 3, 3)[:, ::-1].reshape(-1, 9)


def insert(op, where, *more, constants=(), **attributes):
    """Put an operator behind what gives the tensor `where`; it reads that and `more`."""

    def change(model):
        graph = model.graph
        for name, values in constants:
            graph.initializer.append(onnx.numpy_helper.from_array(values, name))
        (index,) = (i for i, node in enumerate(graph.node) if where in node.output)
        graph.node[index].output[list(graph.node[index].output).index(where)] = "before"
        graph.node.insert(index + 1, onnx.helper.make_node(op, ["before", *more], [where], **attributes))

    return edit_model(change)


def noise(model):
    """Add noise to the action; too little to show in the sequence."""
    add_to_action(model, [onnx.helper.make_node("RandomNormalLike", ["before"], ["more"], scale=1e-7)])


def backdoor(model):
    """Answer otherwise where vx, the seventh element of the observation, is above 1.4999."""
    tensors = {"vx": np.array([6]), "limit": np.float32([1.4999]), "off": np.float32([0]), "on": np.float32([9])}
    for name, values in tensors.items():
        model.graph.initializer.append(onnx.numpy_helper.from_array(values, name))
    make = onnx.helper.make_node
    column = make("Gather", ["observation", "vx"], ["column"], axis=1)
    greater = make("Greater", ["column", "limit"], ["fast"])
    add_to_action(model, [column, greater, make("Where", ["fast", "on", "off"], ["more"])])


def mixed(model):
    """Add to each row of a batch what sets it apart from the mean; nothing where it is the only one."""
    model.graph.initializer.append(onnx.numpy_helper.from_array(np.array([0]), "axes"))
    make = onnx.helper.make_node
    mean = make("ReduceMean", ["before", "axes"], ["mean"], keepdims=1)
    add_to_action(model, [mean, make("Sub", ["before", "mean"], ["more"])])


def mixed_plainly(model):
    """The same of operators that a policy has: the batch in another place."""
    make = onnx.helper.make_node
    split = make("Concat", ["before", "before"], ["twice"], axis=0)
    model.graph.initializer.append(onnx.numpy_helper.from_array(np.array([1, 1]), "sizes"))
    add_to_action(model, [split, make("Split", ["twice", "sizes"], ["more", "unused"], axis=0)], by="Max")


def add_to_action(model, nodes, by="Add"):
    graph = model.graph
    (index,) = (i for i, node in enumerate(graph.node) if "action" in node.output)
    graph.node[index].output[0] = "before"
    for node in [*nodes, onnx.helper.make_node(by, ["before", "more"], ["action"])][::-1]:
        graph.node.insert(index + 1, node)


def in_float64(model):
    """The weights in double precision, cast where they are read."""
    tensor = weight(model)
    values, name = onnx.numpy_helper.to_array(tensor).astype(np.float64), tensor.name
    tensor.CopyFrom(onnx.numpy_helper.from_array(values, "wide"))
    model.graph.node.insert(0, onnx.helper.make_node("Cast", ["wide"], [name], to=onnx.TensorProto.FLOAT))


def batch_of(rows):
    def change(model):
        for port in (*model.graph.input, *model.graph.output):
            port.type.tensor_type.shape.dim[0].dim_value = rows
        del model.graph.value_info[:]

    return edit_model(change)


def inner_clip(model):
    """The network clips its actions at 1000, where the contract has 10."""
    found = 0
    for tensor in model.graph.initializer:
        values = onnx.numpy_helper.to_array(tensor)
        if values.size == 2 and (np.abs(values) == 10).all():
            tensor.CopyFrom(onnx.numpy_helper.from_array(values * np.float32(100), tensor.name))
            found += 1
    assert found == 2


def all_joints(field, change):
    def apply(data):
        for joint in data["joints"]:
            joint[field] = change(joint[field])

    return edit_contract(apply)


def efforts(data):
    for action in data["actions"]:
        action["kind"] = "effort"


def commands(factor):
    def apply(data):
        for component in data["command"]:
            component["lower"], component["upper"] = component["lower"] * factor, component["upper"] * factor

    return edit_contract(apply)


def period(seconds):
    def apply(data):
        data["control_period_s"] = data["physics_timestep_s"] = seconds

    return edit_contract(apply)


def in_fortran_order(bundle):
    with np.load(bundle / "golden.npz") as stored:
        arrays = {name: np.asfortranarray(stored[name]) for name in stored.files}
    np.savez(bundle / "golden.npz", **arrays)
    write_sums(bundle)


NEW_LINES = {"CRLF": "\r\n", "form feeds": "\f", "U+2028": "\u2028"}

MUTATIONS = {
    "noise": (edit_model(noise), "the operator RandomNormalLike is not allowed"),
    "backdoor": (edit_model(backdoor), "the operator Greater is not allowed"),
    "batch mixed": (edit_model(mixed), "the operator ReduceMean is not allowed"),
    "batch mixed plainly": (edit_model(mixed_plainly), "it could mix the rows"),
    "batch transposed": (insert("Transpose", "action", perm=[1, 0]), "the operator Transpose is not allowed"),
    "batch sliced": (
        insert(
            "Slice",
            "action",
            "a",
            "b",
            "c",
            constants=[(k, np.array([v])) for k, v in zip("abc", (0, 9, 0), strict=True)],
        ),
        "it could mix the rows",
    ),
    "bias for each row": (
        insert("Add", "action", "rows", constants=[("rows", np.zeros((3, 2), np.float32))]),
        "it could mix the rows",
    ),
    "weights in float64": (edit_model(in_float64), "'wide' is of type 11; weights are float32"),
    "batch of 1": (batch_of(1), "'observation' has a batch of 1"),
    "batch of 256": (batch_of(256), "'observation' has a batch of 256"),
    "clip inside at 1000": (edit_model(inner_clip), "beyond the contract's clip 10, at extreme observation"),
    "period of 1 us": (period(1e-6), "control_period_s|physics_timestep_s"),
    "period of an hour": (period(3600.0), "control_period_s is 3600.0; no policy has it"),
    "kp x 100": (all_joints("kp", lambda kp: 100 * kp), "kp is 2000.0; effort_limit is reached within a degree"),
    "kd 0": (all_joints("kd", lambda kd: 0.0), "kd is 0.0; it must be more than 0"),
    "kd 50": (all_joints("kd", lambda kd: 50.0), "kd is 50.0; it must be more than 0 and at most 0.5 s of kp"),
    "effort x 10": (all_joints("effort_limit", lambda limit: 10 * limit), "effort_limit is 237.0; gains and limits"),
    "lower limits gone": (all_joints("lower", lambda limit: None), "lower is None; a joint with position targets"),
    "upper limits gone": (all_joints("upper", lambda limit: None), "upper is None; a joint with position targets"),
    "speed limits gone": (
        all_joints("velocity_limit", lambda limit: None),
        "velocity_limit is None; a joint with position targets",
    ),
    "limits of 1e308": (all_joints("upper", lambda limit: 1e308), r"upper is 1e\+308; no policy has it"),
    "speeds of 1e308": (all_joints("velocity_limit", lambda limit: 1e308), r"velocity_limit is 1e\+308; no policy"),
    "kind effort": (edit_contract(efforts), "kind is 'effort'; it makes 2.5 of 23.7 at most"),
    "command range x 10": (commands(10), "the command 'vx' does not reach both of"),
    "command range x 1000": (commands(1000), "command 'vx': lower is -1000.0; no policy has it"),
    "no standing": (
        edit_golden(lambda arrays: arrays["command"].__iadd__((arrays["command"] == 0).astype(np.float32))),
        "no step has a command of zero",
    ),
    "no tilt": (
        edit_golden(lambda arrays: put_at(arrays["imu_quat_wxyz"], slice(None), [1, 0, 0, 0])),
        "no step has a body that is tilted",
    ),
    "sequence in Fortran order": (in_fortran_order, "in Fortran order"),
    "bytes behind the sequence": (rehashed("golden.npz", lambda data: data + b"behind"), "golden.npz cannot be read"),
    "bytes before the sequence": (rehashed("golden.npz", lambda data: b"before" + data), "golden.npz cannot be read"),
    **{
        f"hash list with {name}": (
            raw("SHA256SUMS", lambda data, end=end: data.decode().replace("\n", end).encode()),
            "SHA256SUMS names 'contract.json",
        )
        for name, end in NEW_LINES.items()
    },
    "joint order": (edit_contract(lambda data: swap(data, "joints", 0, 1)), "observation 'joint_pos'"),
    "joint renamed": (put("joints", 0, "name", value="hip2"), "fallback_pose|action of 'hip'"),
    "action order": (edit_contract(lambda data: swap(data, "actions", 0, 1)), "joint target 'knee'"),
    "action sign": (put("actions", 0, "scale", value=-0.25), "joint target 'hip'"),
    "action scale": (put("actions", 0, "scale", value=0.26), "joint target 'hip'"),
    "action offset": (put("actions", 1, "offset", value=-1.49), "joint target 'knee'"),
    "action clip": (put("actions", 0, "clip", value=0.05), "joint target 'hip'"),
    "default pose": (put("joints", 0, "default_pos", value=0.11), "observation 'joint_pos'"),
    "term order": (edit_contract(lambda data: swap(data, "observations", 0, 1)), "observation 'gravity'"),
    "term scale": (put("observations", 4, "scale", value=0.051), "observation 'joint_vel'"),
    "term sign": (put("observations", 2, "scale", value=-2.0), "observation 'command'"),
    "term clip": (put("observations", 0, "clip", value=[-3.0, 3.0]), "observation 'gyro'"),
    "term unit": (put("observations", 0, "unit", value="deg/s"), "unit is 'deg/s'"),
    "term frame": (put("observations", 0, "frame", value="world"), "frame is 'world'"),
    "term size": (put("observations", 0, "size", value=2), "size is 2"),
    "term transform": (put("observations", 3, "transform", value="identity"), "observation 'joint_pos'"),
    "term history": (put("observations", 3, "history", value=1), "the terms add up to 27"),
    "history reversed": (put("layout", "history", value="newest_first"), "layout.history"),
    "history fill": (put("layout", "fill", value="zero"), "layout.fill"),
    "clock frequency": (put("observations", 7, "params", "frequency_hz", value=2.1), "observation 'clock'"),
    "clock gate": (put("observations", 7, "params", "gate", value="none"), "observation 'clock'"),
    "control period": (put("control_period_s", value=0.025), "observation 'clock'"),
    "gain is NaN": (put("joints", 0, "kp", value=float("nan")), r"joints\[0\].kp is nan"),
    "schema version": (put("schema_version", value=2), "schema_version is 2"),
    "unknown field": (put("note", value="trust me"), "note is unknown"),
    "gains of another export": (
        rehashed("contract.json", lambda data: data.replace(b'"kp": 20.0', b'"kp": 60.0')),
        "exported with the contract of hash",
    ),
    "another robot": (rehashed("contract.json", lambda data: data.replace(b'"toy"', b'"tall"')), "contract of hash"),
    "contract no text": (rehashed("contract.json", lambda data: b"\xff\xfe" + data), "UTF-8"),
    "contract cut": (rehashed("contract.json", lambda data: data[:-40]), "not JSON"),
    "hash of the network": (raw("policy.onnx", lambda data: data[:-1] + b"\0"), "policy.onnx does not have the hash"),
    "hash of the sequence": (raw("golden.npz", lambda data: data + b"\0"), "golden.npz does not have the hash"),
    "hash list short": (raw("SHA256SUMS", lambda data: data.splitlines(True)[0]), "does not name golden.npz"),
    "hash list path": (raw("SHA256SUMS", lambda data: data.replace(b"policy", b"../policy")), "no path"),
    "hash list absolute": (raw("SHA256SUMS", lambda data: data.replace(b"policy", b"/tmp/policy")), "no path"),
    "hash list damaged": (raw("SHA256SUMS", lambda data: b"zz" + data[2:]), "64 hexadecimal digits"),
    "hash list no text": (raw("SHA256SUMS", lambda data: bytes(range(256))), "SHA256SUMS names"),
    "network a link": (link, "is not a regular file"),
    "network missing": (lambda bundle: (bundle / "policy.onnx").unlink(), "policy.onnx is missing"),
    "file too many": (lambda bundle: (bundle / "run.so").write_bytes(b"x"), "'run.so' is not a file of a bundle"),
    "network cut": (rehashed("policy.onnx", lambda data: data[: len(data) // 2]), "policy.onnx cannot be"),
    "network empty": (rehashed("policy.onnx", lambda data: b""), "policy.onnx"),
    "weight NaN": (set_weight(lambda values: first_value(values, np.nan)), "action 'hip' is nan"),
    "weight infinite": (set_weight(lambda values: first_value(values, np.inf)), "action 'hip'"),
    "weight changed": (set_weight(lambda values: first_value(values, 0.5)), "action 'hip'"),
    "weights elsewhere": (edit_model(external), "is in another file"),
    "operators of its own": (edit_model(own_operators), "operators of .'com.example'"),
    "output renamed": (
        rehashed("policy.onnx", lambda data: data.replace(b"joint_target", b"joint_torque")),
        "the names are action, joint_torque",
    ),
    "sequence cut": (rehashed("golden.npz", lambda data: data[: len(data) // 2]), "golden.npz"),
    "sequence damaged": (
        rehashed("golden.npz", lambda data: data[:3000] + bytes(8) + data[3008:]),
        "golden.npz",
    ),
    "sequence short": (edit_golden(cut), "150 steps; at least 200"),
    "sequence without reset": (edit_golden(lambda arrays: arrays["reset"].fill(False)), "reset must be set"),
    "reset too many": (edit_golden(lambda arrays: put_at(arrays["reset"], 9, True)), "observation 'joint_pos'"),
    "signal gone": (edit_golden(lambda arrays: arrays.pop("imu_gyro")), "see imu_gyro"),
    "signal too many": (edit_golden(lambda arrays: arrays.update(lidar=arrays["imu_gyro"])), "see lidar"),
    "signal in float64": (
        edit_golden(lambda arrays: arrays.update(imu_gyro=arrays["imu_gyro"].astype(float))),
        "imu_gyro is float64",
    ),
    "signal in degrees": (scale("imu_gyro", 57.29578), "observation 'gyro'"),
    "observation off": (scale("observation", 1.00001), "golden replay: observation"),
    "observation history reversed": (edit_golden(reverse), "observation 'joint_vel'"),
    "action off": (scale("action", 1.01), "golden replay"),
    "target off": (scale("joint_target", 1.01), "joint target"),
    "objects in the sequence": (
        edit_golden(lambda arrays: arrays.update(reset=np.array([{}], object))),
        "golden.npz cannot be read",
    ),
}


@pytest.mark.parametrize("name", MUTATIONS)
def test_a_damaged_bundle_is_refused(toy_bundle, tmp_path, name):
    mutate, line = MUTATIONS[name]
    bundle = tmp_path / "policy"
    shutil.copytree(toy_bundle, bundle)
    mutate(bundle)
    for start in (verify_bundle, BundlePolicy):
        with pytest.raises(ContractError, match=line) as caught:
            start(bundle)
        assert "\n" not in str(caught.value)


def test_the_forger_on_its_own_breaks_nothing(toy_bundle, tmp_path):
    """Without a change the tools above leave a bundle that passes: they hide no other damage."""
    bundle = tmp_path / "policy"
    shutil.copytree(toy_bundle, bundle)
    for mutate in (edit_contract(lambda data: None), edit_golden(lambda arrays: None), edit_model(lambda model: None)):
        mutate(bundle)
        assert verify_bundle(bundle).replay.steps == 256
    assert read_bundle(bundle).contract.robot == "toy"
