"""The store by which the processes of a training find each other, on the one address that is meant.

torch's own TCPStore listens on every address of the machine, without a password, and torchrun unpickles the content
of one. Here a store listens on the given address.
"""

from __future__ import annotations

import socket
import sys
import time
from datetime import timedelta
from typing import Any

LOOPBACK = "127.0.0.1"
LOOPBACK_NAME = "lo" if sys.platform == "linux" else "lo0"
"""The loopback's network interface, for Gloo and NCCL."""
WAIT = timedelta(minutes=30)
"""How long the processes may take to find each other."""
LOOK_S = 1.0
"""Time between two looks for a name that is not known yet [s]: a new pod's becomes known after it has started."""


def open_store(host: str, port: int, size: int | None = None, *, is_first: bool, wait: timedelta = WAIT) -> Any:
    """Return a `torch.distributed.TCPStore`, which listens here for the first process and is reached by the others.

    Args:
        host: The name or address of the first process's machine; of several, one by which the others reach it.
        port: Its port.
        size: How many processes use the store; None: any number.
        is_first: Whether this is the process that listens.
        wait: How long the store, and later a key in it, is waited for.

    Raises:
        OSError: The first process: the port is in use, or an address is not this machine's.
        RuntimeError: Nobody answers.
    """
    from torch.distributed import TCPStore  # pyright: ignore[reportPrivateImportUsage]

    address = own_address(host, wait) if is_first or is_here(host, wait) else host
    if not is_first:
        return TCPStore(address, port, size, is_master=False, timeout=wait)
    listener = listen(address, port)
    number = listener.getsockname()[1]  # torch closes the socket with the store.
    return TCPStore(address, number, size, is_master=True, timeout=wait, master_listen_fd=listener.detach())


def listen(address: str, port: int) -> socket.socket:
    """Return a socket that listens on one address; raises OSError if that is not ours or the port is in use."""
    listener = socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((address, port))
        listener.listen(1024)
    except OSError:
        listener.close()
        raise
    return listener


def own_address(host: str, wait: timedelta = WAIT) -> str:
    """Return the address of this machine that a name of it means.

    A name that means another address, a service's or the 127.0.1.1 that Debian gives a machine's own name, stands for
    the address from which this machine reaches others. A loopback address, or `localhost`, stands for itself.

    Raises:
        OSError: The name is not known.
    """
    found = _addresses(host, wait)
    if host in (*found, "localhost"):
        return found[0]
    here = [address for address in found if not address.startswith(("127.", "::1")) and is_own(address)]
    return here[0] if here else _source("192.0.2.1", found[0])


def address_toward(host: str, wait: timedelta = WAIT) -> str:
    """Return the address of this machine by which another one of that name, or this one, reaches it.

    Raises:
        OSError: The name is not known.
    """
    return own_address(host, wait) if is_here(host, wait) else _source(_addresses(host, wait)[0], host)


def is_here(host: str, wait: timedelta = WAIT) -> bool:
    """Return whether a name, or an address, is one of this machine; raises OSError if the name is not known."""
    return any(is_own(address) for address in _addresses(host, wait))


def is_own(address: str) -> bool:
    """Return whether an address is one of this machine's."""
    try:
        listen(address, 0).close()
    except OSError:
        return False
    return True


def _addresses(host: str, wait: timedelta) -> list[str]:
    """Return the addresses of a name, those of IPv4 first."""
    end = time.monotonic() + wait.total_seconds()
    while True:
        try:
            found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
        except socket.gaierror:
            if time.monotonic() > end:
                raise
            time.sleep(LOOK_S)
        else:
            return [str(row[4][0]) for row in sorted(found, key=lambda row: row[0] != socket.AF_INET)]


def _source(other: str, default: str) -> str:
    """Return the address from which packets to another one would go; `default` if none would. Nothing is sent."""
    with socket.socket(socket.AF_INET6 if ":" in other else socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect((other, 9))
        except OSError:
            return default
        return str(probe.getsockname()[0])
