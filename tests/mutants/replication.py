"""Rules of replication and of the quorum that are left out: who is in sync, what is committed, what is cut off."""

from __future__ import annotations

from tests.mutants import Mutant

REPLICATION = "core_broker/replication/"
LEADERSHIP, FETCHING = f"{REPLICATION}leadership.py", f"{REPLICATION}fetching.py"
PARTITION = f"{REPLICATION}partition.py"
TESTS = "tests/core_broker/replication/"
PARTITIONS, MODEL = f"{TESTS}test_partition.py", f"{TESTS}test_model.py"
FETCHES = f"{TESTS}test_fetching.py"
DELETED = f"{TESTS}test_deleted_records.py"

MUTANTS: tuple[Mutant, ...] = (
    Mutant(
        "a follower joins that begins before what was deleted",
        LEADERSHIP,
        " or follower.log_start_offset < own_start",
        "",
        (PARTITIONS,),
    ),
    Mutant(
        "a follower joins that lacks what the last leader had",
        LEADERSHIP,
        "follower.end_offset < max(high_watermark, self.epoch_start)",
        "follower.end_offset < high_watermark",
        (PARTITIONS,),
    ),
    Mutant(
        "in-sync replicas that are asked for count alone",
        LEADERSHIP,
        "return tuple(dict.fromkeys([*self.isr, *self._change.isr]))",
        "return self._change.isr",
        (f"{MODEL}::test_nearest_states",),
    ),
    Mutant(
        "what was never committed stays below what was deleted",
        FETCHING,
        "        if not copy.has_joined:\n",
        "        if False:\n",
        (f"{DELETED}::test_what_was_never_committed_does_not_stay_below_what_was_deleted",),
    ),
    Mutant(
        "a follower tells where it begins before that is on disk",
        FETCHING,
        "log.latest_epoch, self.start",
        "log.latest_epoch, log.log_start_offset",
        (DELETED,),
    ),
    Mutant(
        "what is committed moves with fewer in sync than min.insync.replicas",
        PARTITION,
        "if leadership is None or core.obstacles & TOO_FEW_IN_SYNC:",
        "if leadership is None:",
        (PARTITIONS,),
    ),
    Mutant(
        "a follower that does not know its leader's epoch keeps what it has of later ones",
        FETCHING,
        "return min(epoch_end, end)",
        "return min(diverging.end_offset, end)",
        (FETCHES,),
    ),
    Mutant(
        "a fetch session that is gone is gone on with",
        FETCHING,
        'error {answer.error_code}")\n            self._new_session()\n',
        'error {answer.error_code}")\n',
        (FETCHES,),
    ),
    Mutant(
        "a follower of the quorum cuts off what was committed",
        "core_broker/cluster/raft/raft.py",
        "if self.high_watermark is not None and offset < self.high_watermark:",
        "if False:",
        ("tests/core_broker/cluster/raft/test_follower.py",),
    ),
)
