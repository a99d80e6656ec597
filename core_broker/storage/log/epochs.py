"""Which leader epoch began at which offset (KIP-101), and its checkpoint file in Kafka's format.

The batch headers hold the same facts, so after a crash a recovery reads from the log what the file lacks.
"""

from __future__ import annotations

from bisect import bisect_right

from ..disk.small_files import parse_checkpoint, render_checkpoint

EPOCH_CHECKPOINT = "leader-epoch-checkpoint"
UNDEFINED = (-1, -1)


class LeaderEpochs:
    """Increasing epochs with increasing start offsets. `dirty`: the checkpoint file is out of date."""

    __slots__ = ("_epochs", "_starts", "dirty", "latest")

    def __init__(self) -> None:
        self._epochs: list[int] = []
        self._starts: list[int] = []
        self.latest = -1  # the last epoch, -1 when there is none
        self.dirty = False

    def entries(self) -> list[tuple[int, int]]:
        return list(zip(self._epochs, self._starts, strict=True))

    def assign(self, epoch: int, start_offset: int) -> None:
        """Record an epoch's first batch. An earlier epoch, as after an unclean election, removes the later ones."""
        if epoch < 0 or epoch == self.latest:
            return
        while self._epochs and (self._epochs[-1] >= epoch or self._starts[-1] >= start_offset):
            self._epochs.pop()
            self._starts.pop()
        self._epochs.append(epoch)
        self._starts.append(start_offset)
        self.latest = epoch
        self.dirty = True

    def end_offset_for(self, epoch: int, log_end_offset: int) -> tuple[int, int]:
        """The largest known epoch up to `epoch`, and where it ended; (-1, -1) if none is known."""
        if epoch == UNDEFINED[0]:
            return UNDEFINED
        if epoch == self.latest:
            return epoch, log_end_offset
        higher = bisect_right(self._epochs, epoch)
        if higher == len(self._epochs):
            return UNDEFINED
        return (self._epochs[higher - 1] if higher else epoch), self._starts[higher]

    def epoch_at(self, offset: int) -> int:
        """The epoch in which an offset was written; -1 if the offset is older than all known epochs."""
        found = bisect_right(self._starts, offset)
        return self._epochs[found - 1] if found else -1

    def truncate_end(self, offset: int) -> None:
        """Forget epochs that begin at this offset or later."""
        while self._starts and self._starts[-1] >= offset:
            self._starts.pop()
            self._epochs.pop()
            self.dirty = True
        self.latest = self._epochs[-1] if self._epochs else -1

    def truncate_start(self, offset: int) -> None:
        """Forget epochs that ended at or before this offset; the epoch that holds it now begins there."""
        keep = bisect_right(self._starts, offset) - 1
        if keep < 0 or (keep == 0 and self._starts[0] == offset):
            return
        del self._starts[:keep], self._epochs[:keep]
        self._starts[0] = offset
        self.dirty = True

    def clear(self) -> None:
        self.__init__()  # type: ignore[misc]
        self.dirty = True

    def encode(self) -> bytes:
        return render_checkpoint(f"{epoch} {start}" for epoch, start in self.entries())

    @classmethod
    def decode(cls, data: bytes, path: str) -> LeaderEpochs:
        """Raises CheckpointError naming `path`."""
        epochs = cls()
        for epoch, start in parse_checkpoint(data, path, 2):
            epochs.assign(int(epoch), int(start))
        epochs.dirty = False
        return epochs
