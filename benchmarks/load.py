"""A closed-loop load: every connection sends one ready-made request, reads its answer, sends again.

Requests are encoded once and only their correlation ids are patched, so that this process costs little beside the
broker it measures. Every answer must have the length of the first, which the caller has checked: a broker's errors
have another one. Standard library only. `python -m benchmarks.load HOST:PORT FRAME...` prints one JSON line.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import select
import socket
import struct
import sys
import time
from collections.abc import Sequence
from pathlib import Path

CORRELATION_AT = 8  # after size, api key and version
BUFFER_BYTES = 4 << 20
LATENCIES_MAX = 1_000_000
SIZE_CORRELATION = struct.Struct(">ii")
CORRELATION = struct.Struct(">i")
TIMEOUT_S = 20.0


class UnexpectedAnswer(RuntimeError):
    """The broker answered with something else than at first: most likely an error."""


def ask(address: str, frame: bytes | memoryview) -> bytes:
    """One request on a connection of its own; its answer without the size."""
    host, _, port = address.rpartition(":")
    with socket.create_connection((host, int(port)), TIMEOUT_S) as connection, connection.makefile("rb") as answer:
        connection.sendall(frame)
        return answer.read(int.from_bytes(answer.read(4), "big"))


def run(
    address: str,
    frames: Sequence[bytes],
    *,
    connections: int = 1,
    seconds: float = 3.0,
    max_bytes: int = 1 << 62,
    answer_bytes: int | None = None,
    rotate: bool = False,
) -> dict[str, float]:
    """Load `address` until `seconds` have passed or `max_bytes` were sent and received; connection i sends
    frames[i % len(frames)], with `rotate` each time the next that is its. answer_bytes: size of a right answer with its
    size field; else what comes first."""
    host, _, port = address.rpartition(":")
    buffer = bytearray(BUFFER_BYTES)
    lines: dict[int, tuple[socket.socket, bytearray, list[int]]] = {}
    with contextlib.ExitStack() as held:
        epoll = held.enter_context(contextlib.closing(select.epoll(connections)))
        for number in range(connections):
            line = held.enter_context(socket.create_connection((host, int(port)), TIMEOUT_S))
            line.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            lines[line.fileno()] = line, bytearray(frames[number % len(frames)]), [0, 0]
            epoll.register(line, select.EPOLLIN)
        if rotate:
            turns = {fd: _Turns(frames, number, connections) for number, fd in enumerate(lines)}
            return _many(epoll, lines, buffer, seconds, max_bytes, answer_bytes, turns)
        loop = _one if connections == 1 else _many
        return loop(epoll, lines, buffer, seconds, max_bytes, answer_bytes)


class _Turns:
    """The frames that one of several connections sends in turn, such that together they send all of them."""

    def __init__(self, frames: Sequence[bytes], number: int, connections: int) -> None:
        self.frames = [bytearray(frame) for frame in frames[number % len(frames) :: connections]]
        self.next = 0

    def take(self) -> bytearray:
        frame = self.frames[self.next]
        self.next = (self.next + 1) % len(self.frames)
        return frame


def _check(buffer: bytearray, got: int, correlation: int, answer_bytes: int | None) -> int:
    """The bytes of an answer whose first `got` bytes have arrived."""
    if got < SIZE_CORRELATION.size:
        raise UnexpectedAnswer(f"{got} bytes of an answer, or a closed connection")
    size, answered = SIZE_CORRELATION.unpack_from(buffer)
    if answered != correlation or (answer_bytes is not None and size + 4 != answer_bytes):
        raise UnexpectedAnswer(
            f"an answer of {size + 4} bytes to request {answered}; expected {answer_bytes} to {correlation}:"
            f" {bytes(buffer[8 : min(got, 300)])!r}"
        )
    return size + 4


def _many(
    epoll: select.epoll,
    lines: dict[int, tuple[socket.socket, bytearray, list[int]]],
    buffer: bytearray,
    seconds: float,
    max_bytes: int,
    answer_bytes: int | None,
    turns: dict[int, _Turns] | None = None,
) -> dict[str, float]:
    clock = time.perf_counter
    pack = CORRELATION.pack_into
    latencies: list[float] = []
    sampled = next(iter(lines))
    done = moved = 0
    start = sent_at = clock()
    end = start + seconds
    for line, frame, _ in lines.values():
        pack(frame, CORRELATION_AT, 0)
        line.sendall(frame)
    flying = len(lines)
    going = True
    while flying:
        events = epoll.poll(TIMEOUT_S)
        if not events:
            raise UnexpectedAnswer(f"no answer for {TIMEOUT_S} s")
        going = going and clock() < end and moved < max_bytes
        for fd, _ in events:
            line, frame, state = lines[fd]  # state: correlation id, bytes to come
            got = line.recv_into(buffer)
            if state[1] == 0:
                state[1] = answer_bytes = _check(buffer, got, state[0], answer_bytes)
            state[1] -= got
            if state[1] > 0:
                if not got:
                    raise UnexpectedAnswer("the connection was closed")
                continue
            state[1] = 0
            done += 1
            moved += len(frame) + answer_bytes  # type: ignore[operator]
            if fd == sampled and len(latencies) < LATENCIES_MAX:
                now = clock()
                latencies.append(now - sent_at)
                sent_at = now
            if not going:
                flying -= 1
                continue
            if turns is not None:
                frame = turns[fd].take()
            state[0] = correlation = (state[0] + 1) & 0x7FFFFFFF
            pack(frame, CORRELATION_AT, correlation)
            line.sendall(frame)
    return _result(done, clock() - start, moved, latencies)


def _one(
    epoll: select.epoll,
    lines: dict[int, tuple[socket.socket, bytearray, list[int]]],
    buffer: bytearray,
    seconds: float,
    max_bytes: int,
    answer_bytes: int | None,
) -> dict[str, float]:
    clock = time.perf_counter
    ((line, frame, _),) = lines.values()
    pack, send, receive = CORRELATION.pack_into, line.sendall, line.recv_into
    latencies: list[float] = []
    done = moved = 0
    start = before = clock()
    end = start + seconds
    while before < end and moved < max_bytes:
        pack(frame, CORRELATION_AT, done)
        send(frame)
        got = receive(buffer)
        answer_bytes = _check(buffer, got, done, answer_bytes)
        while got < answer_bytes:
            more = receive(buffer)
            if not more:
                raise UnexpectedAnswer("the connection was closed")
            got += more
        done += 1
        moved += len(frame) + got
        now = clock()
        if len(latencies) < LATENCIES_MAX:
            latencies.append(now - before)
        before = now
    return _result(done, clock() - start, moved, latencies)


def _result(done: int, seconds: float, moved: int, latencies: list[float]) -> dict[str, float]:
    latencies.sort()
    count = len(latencies)
    return {
        "requests": done,
        "seconds": seconds,
        "bytes": moved,
        "p50_ms": latencies[count // 2] * 1e3,
        "p99_ms": latencies[min(count - 1, count * 99 // 100)] * 1e3,
    }


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.load", description=__doc__.splitlines()[0])
    parser.add_argument("address", metavar="HOST:PORT")
    parser.add_argument("frames", type=Path, nargs="+", help="files that hold one request frame each")
    parser.add_argument("--connections", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=3.0)
    parser.add_argument("--max-bytes", type=int, default=1 << 62)
    parser.add_argument("--answer-bytes", type=int)
    parser.add_argument("--rotate", action="store_true", help="each connection sends its share of the frames in turn")
    options = parser.parse_args()
    try:
        print(json.dumps(run(
            options.address, [path.read_bytes() for path in options.frames], connections=options.connections,
            seconds=options.seconds, max_bytes=options.max_bytes, answer_bytes=options.answer_bytes,
            rotate=options.rotate,
        )))  # fmt: skip
    except (OSError, UnexpectedAnswer) as error:
        print(f"load: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
