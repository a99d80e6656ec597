"""A small exactly-once Delta writer for `foreachBatch`: Delta's own log remembers which micro-batches are in it.

Each batch is one Delta commit that carries an application transaction (app id, batch id); a batch that Spark replays
after a crash is found there and left out. Written by delta-rs, so no jar is needed; a batch passes through the
driver's memory, so bound it (`maxOffsetsPerTrigger`).
"""

from __future__ import annotations

from hashlib import blake2b
from pathlib import Path

from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake
from deltalake.exceptions import TableNotFoundError
from pyspark.sql import DataFrame

from .errors import DeltaError

QUERY_ID = "sql.streaming.queryId"  # Spark's local property; the id stays as long as the checkpoint


class DeltaWriter:
    """`stream.writeStream.foreachBatch(DeltaWriter(path, app_id)).option("checkpointLocation", …)`.

    path: of the table, made at the first batch. app_id: names this query; several may write to one table.
    """

    def __init__(self, path: str | Path, app_id: str) -> None:
        self.path = str(path)
        self.app_id = app_id

    def __call__(self, batch: DataFrame, batch_id: int) -> None:
        """Append the batch, unless the table has it already.

        Raises DeltaError where table and checkpoint are not of one query: batches would be lost or doubled.
        """
        query = batch.sparkSession.sparkContext.getLocalProperty(QUERY_ID)
        checkpoint = int.from_bytes(blake2b(query.encode(), digest_size=7).digest()) if query else 0
        last = self.committed()
        if last >= 0 and self._version(f"{self.app_id}.checkpoint") != checkpoint:
            raise DeltaError(
                f"the Delta table {self.path} has batches 0 to {last} of '{self.app_id}' from another checkpoint than "
                "this query's: go on with that checkpoint, write to another table, or choose another app id"
            )
        if last >= batch_id:
            return
        if batch_id != last + 1:
            missing = f"{last + 1} to {batch_id - 1}"
            raise DeltaError(
                f"batches {missing} of '{self.app_id}' are not in the Delta table {self.path}, though the checkpoint "
                "says so: was the table removed? Restore it, or remove the checkpoint too"
            )
        write_deltalake(
            self.path,
            batch.toArrow(),
            mode="append",
            commit_properties=CommitProperties(
                app_transactions=[
                    Transaction(self.app_id, batch_id),
                    Transaction(f"{self.app_id}.checkpoint", checkpoint),
                ]
            ),
        )

    def committed(self) -> int:
        """Id of the last micro-batch in the table; -1 when there is none."""
        return self._version(self.app_id)

    def rows(self) -> int:
        """Rows in the table, by its log alone."""
        try:
            return DeltaTable(self.path).count()
        except TableNotFoundError:
            return 0

    def _version(self, app_id: str) -> int:
        try:
            version = DeltaTable(self.path).transaction_version(app_id)
        except TableNotFoundError:
            return -1
        return -1 if version is None else version
