"""Where processes listen."""

import psutil

LOOPBACK = ("127.", "::1", "::ffff:127.")


def reachable(pid):
    """The sockets of a process, and of those that it started, that other machines can reach: {(program, address)}."""
    found = set()
    for process in (psutil.Process(pid), *psutil.Process(pid).children(recursive=True)):
        try:
            sockets = process.connections("inet")
            name = process.name()
        except psutil.Error:  # It has ended.
            continue
        waits = [socket for socket in sockets if socket.status == psutil.CONN_LISTEN]
        found |= {(name, socket.laddr.ip) for socket in waits if not socket.laddr.ip.startswith(LOOPBACK)}
    return found
