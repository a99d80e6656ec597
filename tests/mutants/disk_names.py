"""Syncs of a directory that are left out or come too late: a power cut may then lose a name by itself."""

from __future__ import annotations

from tests.mutants import Mutant

STORAGE = "core_broker/storage/"
SWAP, REAL = f"{STORAGE}log/swap_files.py", f"{STORAGE}disk/real_files.py"
NAMES = "tests/core_broker/storage/test_names.py::test_"
CALLS = "tests/core_broker/storage/test_system_calls.py::test_"

COMPACTED = f"{NAMES}a_compaction_leaves_the_old_segments_or_the_new_one"
GIVEN_UP = f"{NAMES}a_compaction_that_is_given_up_leaves_the_old_segments"
RETAINED = f"{NAMES}retention_leaves_no_gap_and_no_segment_without_its_aborted_transactions"
SYNCED = f"{NAMES}what_was_synced_is_there_by_name_from_the_data_directory_on"
KILLED = f"{NAMES}a_directory_that_a_killed_process_made_is_there_by_name_too"
LEFT = f"{NAMES}a_partition_that_a_killed_process_made_is_there_when_its_log_is_synced"
TOLD = f"{NAMES}a_producer_is_told_of_its_loss_whichever_name_is_left"
MADE = f"{NAMES}a_partition_is_there_when_it_was_made"
DELETED = f"{NAMES}a_partition_is_gone_when_it_was_deleted"
UNDECIDED = f"{NAMES}a_compaction_is_not_decided_while_a_file_of_it_may_be_lost"
STOPPED = f"{NAMES}a_clean_stop_is_believed_once"
INDEXES = f"{NAMES}the_indexes_of_a_closed_segment_are_there_when_the_log_is_synced"
ABORTED = f"{NAMES}the_aborted_transactions_of_the_active_segment_are_there_when_the_log_is_synced"
ATOMIC = f"{CALLS}an_atomic_write_syncs_the_content_before_the_name_and_the_name_before_it_returns"
UNREADABLE = f"{CALLS}a_directory_is_made_in_one_that_may_not_be_read"

MUTANTS: tuple[Mutant, ...] = (
    Mutant(
        "an atomic write does not sync the directory",
        REAL,
        "            raise OSError(error.errno, error.strerror, path) from error\n"
        "        sync_directory(os.path.dirname(path))\n",
        "            raise OSError(error.errno, error.strerror, path) from error\n",
        (ATOMIC,),
    ),
    Mutant(
        "an atomic write renames before it syncs",
        REAL,
        "            os.fsync(held.fd)\n            os.rename(temporary, path)\n",
        "            os.rename(temporary, path)\n            os.fsync(held.fd)\n",
        (ATOMIC,),
    ),
    Mutant(
        "the directory of a log is made without a sync of its parent",
        f"{STORAGE}startup/opening.py",
        "await files.run(make_directory, files, directory)",
        "files.makedirs(directory)",
        (SYNCED,),
    ),
    Mutant(
        "a directory that is there is taken to be on disk",
        f"{STORAGE}disk/files.py",
        "        if _holds_something(files, path):\n            return",
        "        if files.exists(path):\n            return",
        (KILLED,),
    ),
    Mutant(
        "a directory that may not be read cannot have others made in it",
        f"{STORAGE}disk/files.py",
        "        if _holds_something(files, path):\n            return",
        "        if files.listdir(path):\n            return",
        (UNREADABLE,),
    ),
    Mutant(
        "new partitions are not synced by name",
        f"{STORAGE}startup/opening.py",
        "            files.sync_directory(data_dir)\n",
        "            pass\n",
        (MADE,),
    ),
    Mutant(
        "a deletion is told before its name is on disk",
        f"{STORAGE}manager.py",
        "        await self.checkpoints.save()\n        try:\n"
        "            await self.files.run(self.files.sync_directory, self.data_dir)\n",
        "        await self.checkpoints.save()\n        try:\n            pass\n",
        (DELETED,),
    ),
    Mutant(
        "what a killed process made is taken for what is on disk",
        f"{STORAGE}manager.py",
        "            if not has_written:\n",
        "            if self.was_clean and not has_written:\n",
        (LEFT,),
    ),
    Mutant(
        "a log of which no segment is left counts as new",
        f"{STORAGE}startup/recovery.py",
        "crashed = self.has_files and",
        "crashed = bool(bases) and",
        (TOLD,),
    ),
    Mutant(
        "the marker of a clean stop may come back",
        f"{STORAGE}manager.py",
        "            if not has_written:\n",
        "            if not self.was_clean and not has_written:\n",
        (STOPPED,),
    ),
    Mutant(
        "a clean stop leaves names that are not on disk",
        f"{STORAGE}log/closing.py",
        "        self._ranges.files.sync_directory(self.directory)",
        "        pass",
        (STOPPED,),
    ),
    Mutant(
        "the indexes of a closed segment are not synced by name",
        f"{STORAGE}log/syncing.py",
        "or progress.is_unnamed or has_closed or tail.active.has_aborted",
        "or progress.is_unnamed",
        (INDEXES,),
    ),
    Mutant(
        "a closed segment alone is not worth a sync",
        f"{STORAGE}log/syncing.py",
        "not (has_closed or epochs.dirty or progress.is_cut)",
        "not (epochs.dirty or progress.is_cut)",
        (INDEXES,),
    ),
    Mutant(
        "the aborted transactions of the active segment are not synced",
        f"{STORAGE}log/syncing.py",
        "or has_closed or tail.active.has_aborted",
        "or has_closed",
        (ABORTED,),
    ),
    Mutant(
        "retention removes segments in any order",
        f"{STORAGE}log/retention.py",
        "        files.sync_directory(directory)  # else",
        "        # else",
        (RETAINED,),
    ),
    Mutant(
        "a compaction renames files whose names are not on disk",
        SWAP,
        "    files.sync_directory(new.directory)  # so",
        "    # so",
        (UNDECIDED,),
    ),
    Mutant(
        "a compaction goes on before it is decided on disk",
        SWAP,
        "    files.sync_directory(new.directory)\n    new.tail = SWAP",
        "    new.tail = SWAP",
        (COMPACTED,),
    ),
    Mutant(
        "a compacted log has its name while those that it replaces may come back",
        SWAP,
        "    files.sync_directory(directory)\n    for renamed in",
        "    for renamed in",
        (COMPACTED,),
    ),
    Mutant(
        "a compacted log and its indexes get their names in any order",
        SWAP,
        "        files.sync_directory(directory)  # the log first",
        "    files.sync_directory(directory)  # the log first",
        (COMPACTED,),
    ),
    Mutant(
        "a start undoes a compaction in any order",
        SWAP,
        "    if undecided is not None:\n",
        "    if undecided is None:\n",
        (COMPACTED, GIVEN_UP),
    ),
    Mutant(
        "a compaction that is given up stays decided",
        SWAP,
        "            files.rename(log + SWAP, log + CLEANED)\n",
        "            pass\n",
        (GIVEN_UP,),
    ),
    Mutant(
        "a compaction that is given up is removed in any order",
        SWAP,
        "        files.sync_directory(directory)\n    _unlink(files, (path + CLEANED",
        "    _unlink(files, (path + CLEANED",
        (GIVEN_UP,),
    ),
)
