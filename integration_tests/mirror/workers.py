"""Workers as real processes, and what the tests of mirrors and streams look at in clusters."""

from __future__ import annotations

import asyncio
import inspect
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Coroutine, Iterable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from integration_tests.brokers import ROOT, die_with_parent
from isthmus.client import Admin, Client, TopicPartition
from isthmus.client.raw import fetch_raw

READY_S = 30.0
ENVIRONMENT = {**os.environ, "PYTHONPATH": str(ROOT / "src"), "PYTHONUNBUFFERED": "1"}


class Worker:
    """One process that says `ready …`; what it writes goes to `log`."""

    def __init__(self, folder: Path, name: str, *arguments: str) -> None:
        self.path = folder / f"{name}.log"
        self.command = [sys.executable, "-m", *arguments]
        with open(self.path, "ab") as log:
            self.process = subprocess.Popen(
                self.command, stdout=log, stderr=log, env=ENVIRONMENT, start_new_session=True,
                preexec_fn=die_with_parent,
            )  # fmt: skip

    @property
    def log(self) -> str:
        return self.path.read_text()

    def ready(self) -> Worker:
        deadline = time.monotonic() + READY_S
        while "ready " not in self.log:
            assert self.process.poll() is None, f"ended with {self.process.returncode}:\n{self.log}"
            assert time.monotonic() < deadline, f"not ready:\n{self.log}"
            time.sleep(0.02)
        return self

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()

    def end(self, timeout_s: float = 12.0) -> int:
        """SIGTERM, and the exit code."""
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(timeout_s)

    def __enter__(self) -> Worker:
        return self

    def __exit__(self, *_: object) -> None:
        if self.process.poll() is None:
            self.kill()


def mirror_arguments(source: str, target: str, topics: str, link: str = "link", alias: str = "src") -> list[str]:
    ends = ["--source-alias", alias, "--source", source, "--target", target]
    return ["isthmus.mirror", "--link", link, *ends, "--topics", topics]


def run(work: Coroutine[Any, Any, Any], timeout_s: float = 60.0) -> Any:
    async def bounded() -> Any:
        async with asyncio.timeout(timeout_s):
            return await work

    return asyncio.run(bounded())


@asynccontextmanager
async def clients(*addresses: str) -> Any:
    made = [Client(address, client_id="test") for address in addresses]
    try:
        for client in made:
            await client.start()
        yield made
    finally:
        for client in made:
            await client.close()


async def until(look: Callable[[], Any], what: str, timeout_s: float = 30.0) -> Any:
    """The first true answer of `look`, which may be async, while other work of the loop goes on."""
    deadline = time.monotonic() + timeout_s
    said: Any = None
    while time.monotonic() < deadline:
        try:
            said = look()
            if inspect.isawaitable(said):
                said = await said
            if said:
                return said
        except AssertionError as error:
            said = error
        await asyncio.sleep(0.05)
    raise AssertionError(f"not within {timeout_s:g} s: {what}; last: {said}")


async def log_bytes(client: Client, topic: str, partition: int) -> bytes:
    """All of a partition's log, as it is fetched."""
    tp = TopicPartition(topic, partition)
    await client.refresh_metadata([topic])
    if partition not in client.partitions(topic):
        return b""
    admin = Admin(client)
    start, end = [(await admin.list_offsets({tp: which}))[tp][0] for which in ("earliest", "latest")]
    found, position = b"", start
    from isthmus.protocol import records

    while position < end:
        node = await client.leader_of(tp)
        [answer] = await fetch_raw(client, {tp: (position, -1)}, node_id=node, max_wait_ms=100)
        assert not answer.error_code, (tp, answer.error_code)
        for at, header in records.walk(answer.records):
            if header.next_offset > position:
                found += answer.records[at : at + header.size_bytes]
                position = header.next_offset
    return found


async def same(source: Client, target: Client, topic: str, partitions: Iterable[int], alias: str = "src") -> bool:
    """Whether the target's partitions are the source's, byte for byte and offset for offset, and not empty."""
    for each in partitions:
        ours, theirs = await log_bytes(target, f"{alias}.{topic}", each), await log_bytes(source, topic, each)
        if not theirs or ours != theirs:
            return False
    return True


def mirror_status(bootstrap: str, link: str = "link") -> dict[tuple[str, int], dict[str, Any]]:
    """What `isthmus mirror status` says, by topic and partition."""
    command = [sys.executable, "-m", "isthmus.console.main", "mirror", "status", link, "-b", bootstrap, "--json"]
    done = subprocess.run(command, capture_output=True, text=True, env=ENVIRONMENT, timeout=30)
    assert done.returncode == 0, done.stderr
    said = json.loads(done.stdout)
    return {(row["topic"], row["partition"]): row for row in said}
