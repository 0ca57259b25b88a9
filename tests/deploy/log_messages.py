"""A log as others read it: MCAP by its own library, messages by the ROS definitions that stand in it."""

import struct

SIZES = {"bool": 1, "uint8": 1, "int32": 4, "uint32": 4, "float32": 4, "int64": 8, "uint64": 8, "float64": 8}
CODES = {
    "bool": "?",
    "uint8": "B",
    "int32": "i",
    "uint32": "I",
    "float32": "f",
    "int64": "q",
    "uint64": "Q",
    "float64": "d",
}


def decode(definition, data):
    """A CDR message by its ros2msg definition; the few rules that ROS has for flat messages."""
    assert data[:4] == b"\x00\x01\x00\x00"
    body, at, message = data[4:], 0, {}

    def take(kind, count=1):
        nonlocal at
        if count:
            at = -(-at // SIZES[kind]) * SIZES[kind]
        values = struct.unpack_from(f"<{count}{CODES[kind]}", body, at)
        at += count * SIZES[kind]
        return list(values)

    for line in definition.splitlines():
        kind, name = line.split(" ")
        base, bracket, size = kind.partition("[")
        if base == "string":
            length = take("uint32")[0]
            message[name] = body[at : at + length - 1].decode()
            at += length
        elif bracket:
            message[name] = take(base, take("uint32")[0] if size == "]" else int(size[:-1]))
        else:
            message[name] = take(base)[0]
    assert at == len(body)
    return message


def messages(path, topics=None):
    """(topic, message, what the library has) of every message, in the order of the calls."""
    from mcap.reader import make_reader

    with path.open("rb") as file:
        found = make_reader(file, validate_crcs=True).iter_messages(topics=topics)
        rows = [(channel.topic, decode(schema.data.decode(), raw.data), raw) for schema, channel, raw in found]
    return sorted(rows, key=lambda row: row[1]["order"])
