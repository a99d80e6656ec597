"""A broker that only stores: it receives a Produce frame, writes it to a file and answers, and looks at nothing.

That is the least any broker does that keeps what it is sent. What is no Produce goes on to an Isthmus broker behind it,
as does the first Produce of a partition: what that answers is the answer to all others, but for the correlation id.
So no frame is taken apart, no checksum computed, no offset given, no index kept. A thread of its own blocks on each
connection. `python -m benchmarks.storing PORT BEHIND FOLDER` runs it; standard library only.
"""

from __future__ import annotations

import os
import re
import shutil
import socket
import sys
import threading
from pathlib import Path

from .load import BUFFER_BYTES, ask

PRODUCE, DELETE_TOPICS = 0, 20
FLEXIBLE_VERSION = 9  # of Produce: a count is one byte from here on, four before (KIP-482)
HEAD_BYTES = 512  # of a frame, in which the topic's name is
TOPIC = re.compile(rb"bench-\d+")


class Store:
    def __init__(self, behind: str, folder: Path) -> None:
        self.behind = behind
        self.folder = folder
        self.answers: dict[tuple[int, bytes, int], bytes] = {}

    def serve(self, connection: socket.socket) -> None:
        """Until the client ends it."""
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        frame = memoryview(bytearray(BUFFER_BYTES))
        files: dict[tuple[bytes, int], int] = {}
        with connection:
            while receive(connection, frame[:4]):
                size = 4 + int.from_bytes(frame[:4], "big")
                if size > BUFFER_BYTES or not receive(connection, frame[4:size]):
                    break
                api, version = int.from_bytes(frame[4:6], "big"), int.from_bytes(frame[6:8], "big")
                if api == PRODUCE:
                    connection.sendall(self._produced(version, frame[:size], files))
                    continue
                connection.sendall(self._asked(frame[:size]))
                if api == DELETE_TOPICS:
                    for topic in TOPIC.findall(frame[:size]):
                        for each in self.folder.glob(f"{topic.decode()}-*"):
                            shutil.rmtree(each)
        for file in files.values():
            os.close(file)

    def _produced(self, version: int, frame: memoryview, files: dict[tuple[bytes, int], int]) -> bytes:
        head = bytes(frame[:HEAD_BYTES])
        found = TOPIC.search(head)
        assert found, f"no topic of a benchmark in {head!r}"
        at = found.end() + (1 if version >= FLEXIBLE_VERSION else 4)
        topic, partition = found[0], int.from_bytes(head[at : at + 4], "big")
        if (topic, partition) not in files:
            path = self.folder / f"{topic.decode()}-{partition}" / "stored.log"
            path.parent.mkdir(exist_ok=True)
            files[topic, partition] = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        os.write(files[topic, partition], frame)
        known = self.answers.get((version, topic, partition))
        if known is None:
            known = self.answers[version, topic, partition] = self._asked(frame)
        return known[:4] + head[8:12] + known[8:]

    def _asked(self, frame: memoryview) -> bytes:
        """What the broker behind answers, with its size."""
        answer = ask(self.behind, frame)
        return len(answer).to_bytes(4, "big") + answer


def receive(connection: socket.socket, into: memoryview) -> bool:
    """Whether as much came. One call for all of it, which empties the socket as it fills: one that is woken by
    `SO_RCVLOWAT` sleeps for good where the socket's buffer is full of segments before it has as many bytes."""
    while into:
        came = connection.recv_into(into, 0, socket.MSG_WAITALL)
        if not came:
            return False
        into = into[came:]
    return True


def main() -> None:
    port, behind, folder = sys.argv[1:]
    store = Store(behind, Path(folder))
    with socket.create_server(("127.0.0.1", int(port))) as listening:
        print("ready", flush=True)
        while True:
            threading.Thread(target=store.serve, args=(listening.accept()[0],), daemon=True).start()


if __name__ == "__main__":
    main()
