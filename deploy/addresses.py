"""HOST:PORT as text: whether two can be had at once, and those that follow one."""

from __future__ import annotations

EVERYWHERE = ("", "0.0.0.0", "::")
MAX_PORT = 65_535


def overlap(one: str, other: str) -> bool:
    """Whether two HOST:PORT cannot both be listened on: the ports are equal, and the hosts, or one is all hosts."""
    parts = [address.rpartition(":") for address in (one, other)]
    hosts = ["127.0.0.1" if host == "localhost" else host.strip("[]") for host, _, _ in parts]
    ports = [port for _, _, port in parts]
    return ports[0] == ports[1] != "0" and (hosts[0] == hosts[1] or any(host in EVERYWHERE for host in hosts))


def counted_up(address: str, by: int) -> str:
    """HOST:PORT so many ports on; port 0, which is any free one, stays."""
    host, _, port = address.rpartition(":")
    return f"{host}:{int(port) + by}" if port.isdecimal() and port != "0" else address
