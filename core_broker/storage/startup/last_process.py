"""What the last process of a data directory left for the next one: whether it stopped cleanly, and its broker epoch.

A clean stop leaves Kafka's marker file, with the epoch (KIP-966). A process that is killed leaves a file of ours, from
when it was registered: what it had written is still in the page cache as long as the machine has not been switched off,
so nothing is lost then, either, unless the disk had refused something.

That file also says as which incarnation the next process is to register. One that ends before it hears of its
registration leaves the file as it is. The next one then is the same incarnation, which was never unfenced, and not one
that does not know the epoch of the process before it: it would be taken for one that has lost something.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
from typing import Any

from ....protocol.primitives import uuid_from_str, uuid_to_str
from ..disk.errors import StorageError
from ..disk.files import Files
from ..disk.small_files import BROKER_EPOCH, CLEAN_SHUTDOWN

NO_EPOCH = -1


class LastProcess:
    """was_clean: whether it stopped cleanly. broker_epoch: its own, if nothing that it had written is lost; NO_EPOCH if
    something may be, or if it had none. successor_id: the incarnation as which this process is to register; None for
    one of its own. All from `take` on."""

    def __init__(self, files: Files, data_dir: str) -> None:
        self.was_clean = False
        self.broker_epoch = NO_EPOCH
        self.successor_id: bytes | None = None
        self._files = files
        self._marker = f"{data_dir}/{CLEAN_SHUTDOWN}"
        self._note = f"{data_dir}/{BROKER_EPOCH}"
        self._next_epoch = NO_EPOCH  # of this process

    def take(self) -> None:
        """Read the files, and remove the marker. Raises OSError."""
        files = self._files
        if files.exists(self._note):
            found = _read(files, self._note)
            if found.get("bootId") and found["bootId"] == files.boot_id():
                self.broker_epoch = _epoch(found)
                self.successor_id = _successor(found)
        self.was_clean = files.exists(self._marker)
        if self.was_clean:
            self.broker_epoch = _epoch(_read(files, self._marker))
            files.unlink(self._marker)

    async def note(self, broker_epoch: int, incarnation_id: bytes) -> None:
        """Save the epoch of this process, before it sends a heartbeat. Raises StorageError; the next process has lost
        something then, by all that it can know."""
        self._next_epoch = broker_epoch
        found = {
            "version": 0,
            "brokerEpoch": broker_epoch,
            "bootId": self._files.boot_id(),
            "successorId": uuid_to_str(hashlib.blake2b(incarnation_id, digest_size=16).digest()),
        }
        try:
            await self._write(self._note, json.dumps(found).encode())
        except StorageError:
            self.doubt()
            raise

    def doubt(self) -> None:
        """A write or a sync has failed: it is not known what the disk and the page cache have."""
        with contextlib.suppress(OSError):
            self._files.unlink(self._note)

    def lost(self) -> None:
        """Something that was here is lost: the next process is none that has all, however this one stops."""
        self.doubt()
        self._next_epoch = NO_EPOCH

    async def mark_clean(self) -> None:
        """This process has stopped cleanly. Raises StorageError."""
        await self._write(self._marker, clean_marker(self._next_epoch))

    async def _write(self, path: str, data: bytes) -> None:
        try:
            await self._files.run(self._files.write_atomic, path, data)
        except OSError as error:
            raise StorageError(error, path, "cannot write") from error


def clean_marker(broker_epoch: int = NO_EPOCH) -> bytes:
    """The contents of the marker file."""
    return json.dumps({"version": 0, "brokerEpoch": broker_epoch}, separators=(",", ":")).encode()


def _read(files: Files, path: str) -> dict[str, Any]:
    """What is in a file of one object; nothing if it is something else."""
    try:
        found = json.loads(files.read(path))
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def _epoch(found: dict[str, Any]) -> int:
    """NO_EPOCH if there is none, as in files of older versions."""
    epoch = found.get("brokerEpoch")
    return epoch if isinstance(epoch, int) else NO_EPOCH


def _successor(found: dict[str, Any]) -> bytes | None:
    try:
        return uuid_from_str(str(found.get("successorId")))
    except ValueError:
        return None
