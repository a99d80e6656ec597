"""Brokers, each wrong in one place: what the differential scenarios must notice.

A mutant is one module of the product with one text in place of another, as a slip of the hand would leave it.
`mutated.py` runs a broker with one of them, test_mutants.py the scenario that is to notice it.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from types import ModuleType
from typing import Any

BROKER = "isthmus.core_broker"
APIS = f"{BROKER}.server.apis"
CONTROLLER = f"{BROKER}.cluster.controller"


@dataclass(frozen=True)
class Mutant:
    """scenario: the one that is to notice it. The text `right` stands in the module exactly once."""

    name: str
    module: str
    right: str
    wrong: str
    scenario: str


MUTANTS: tuple[Mutant, ...] = (
    Mutant(
        "takes_several_batches_for_one_partition",
        f"{BROKER}.server.produce_forms",
        "length + LENGTH_OVERHEAD != len(records)",
        "length + LENGTH_OVERHEAD > len(records)",
        "more_than_one_batch",
    ),
    Mutant(
        "takes_any_acks",
        f"{APIS}.produce",
        "if acks not in ACKS:",
        "if acks not in (*ACKS, 2):",
        "wrong_acks",
    ),
    Mutant(
        "tells_a_duplicate_the_time_of_now",
        f"{APIS}.produce",
        "info.max_timestamp if info.duplicate else info.log_append_time_ms",
        "info.log_append_time_ms",
        "takes_a_repeated_batch_once",
    ),
    Mutant(
        "gives_no_batch_that_is_larger_than_the_limit",
        f"{APIS}.fetch",
        "min_one=min_one",
        "min_one=False",
        "one_batch_comes_even_if_it_is_too_large",
    ),
    Mutant(
        "a_fetch_that_waits_is_not_woken",
        f"{APIS}.fetch",
        "self._loop.call_soon(self._look_again)",
        "self._loop.call_soon(len, self._woken)",
        "is_answered_when_records_come",
    ),
    Mutant(
        "puts_unknown_partitions_first",
        f"{APIS}.fetch",
        "return rows + unknown_ids + unknown, enough",
        "return unknown_ids + unknown + rows, enough",
        "unknown_topics_come_after_known_ones",
    ),
    Mutant(
        "a_consumer_at_the_end_of_an_epoch_has_diverged",
        f"{APIS}.fetch",
        "end_offset < wanted.fetch_offset",
        "end_offset <= wanted.fetch_offset",
        "knows_the_epoch_of_what_it_read",
    ),
    Mutant(
        "a_session_keeps_its_order",
        f"{BROKER}.server.fetch_sessions",
        "self.partitions[key] = self.partitions.pop(key)",
        "self.partitions[key] = self.partitions[key]",
        "limit_is_used_by_another_partition_each_time",
    ),
    Mutant(
        "what_a_limit_left_out_has_nothing_to_tell",
        f"{APIS}.fetch",
        "            wanted.size = 0\n            if wanted.is_idle and",
        "            found, size, wanted.size = wanted.partition, wanted.size, 0\n"
        "            left_out = found and not size and found.high_watermark == wanted.high_watermark\n"
        "            if (wanted.is_idle or left_out) and",
        "what_a_limit_left_out_comes_next",
    ),
    Mutant(
        "a_session_tells_an_error_once",
        f"{APIS}.fetch",
        "if row[1].tell(row[2])]",
        "if not (row[2].error_code and row[1].high_watermark == -1) and row[1].tell(row[2])]",
        "errors_are_told_each_time",
    ),
    Mutant(
        "the_earliest_offset_is_always_0",
        f"{APIS}.list_offsets",
        "answer.offset = partition.log.log_start_offset",
        "answer.offset = 0",
        "offsets_after_records_were_deleted",
    ),
    Mutant(
        "metadata_of_a_null_list_and_an_empty_one_are_alike",
        f"{APIS}.metadata",
        "if asked is None or (context.version == 0 and not asked):",
        "if not asked:",
        "no_topics",
    ),
    Mutant(
        "assignments_by_hand_may_have_holes",
        f"{CONTROLLER}.create_topics",
        "if sorted(by_index) != list(range(len(by_index))):",
        "if len(by_index) != len(topic.assignments):",
        "assignments_that_are_refused",
    ),
    Mutant(
        "validating_makes_the_partitions",
        f"{CONTROLLER}.create_partitions",
        "[] if self.validate_only else records",
        "records",
        "adds_partitions",
    ),
    Mutant(
        "a_topic_named_twice_is_deleted",
        f"{CONTROLLER}.delete_topics",
        "if name in names_twice:",
        "if name in ids_twice:",
        "topic_to_delete_named_twice",
    ),
    Mutant(
        "the_last_records_cannot_be_deleted",
        f"{BROKER}.replication.partition",
        "if not 0 <= before <= self.high_watermark:",
        "if not 0 <= before < self.high_watermark:",
        "deletes_all_by_the_high_watermark",
    ),
    Mutant(
        "epochs_of_clients_are_not_checked",
        f"{APIS}.offset_for_leader_epoch",
        "check_epoch(partition, asked.current_leader_epoch)",
        "pass",
        "client_is_ahead_of_the_leader_epoch",
    ),
    Mutant(
        "tells_synonyms_to_all",
        f"{APIS}.describe_configs",
        "entry.synonyms if request.include_synonyms else []",
        "entry.synonyms",
        "describes_options",
    ),
    Mutant(
        "replaces_options_by_adding_to_them",
        f"{CONTROLLER}.alter_configs",
        "if is_sealed(key, kind)",
        "if True",
        "leaves_a_topic_without_options",
    ),
    Mutant(
        "appends_what_is_there",
        f"{CONTROLLER}.incremental_alter_configs",
        "if operation is Operation.APPEND and part not in parts:",
        "if operation is Operation.APPEND:",
        "appends_and_subtracts",
    ),
    Mutant(
        "elects_leaders_that_need_no_election",
        f"{CONTROLLER}.elect_leaders",
        "        raise _refused(ErrorCode.ELECTION_NOT_NEEDED)\n",
        "        return PartitionChangeRecord(partition_id=index, topic_id=topic_image.id, leader=partition.leader)\n",
        "elections_that_are_not_needed",
    ),
    Mutant(
        "a_page_ends_one_partition_late",
        f"{APIS}.describe_topic_partitions",
        "if last < len(topic.partitions):",
        "if last + 1 < len(topic.partitions):",
        "describes_partitions_page_by_page",
    ),
)


class MutationError(Exception):
    """The product does not read as the mutant expects: the mutant must be written anew."""


def mutate(name: str) -> None:
    """From now on a mutant's module is imported with its fault. Raises MutationError for an unknown mutant."""
    from .group_mutants import GROUP_MUTANTS
    from .transaction_mutants import TRANSACTION_MUTANTS

    all_mutants = (*MUTANTS, *GROUP_MUTANTS, *TRANSACTION_MUTANTS)
    found = next((mutant for mutant in all_mutants if mutant.name == name), None)
    if found is None:
        raise MutationError(f"there is no mutant {name}")
    sys.meta_path.insert(0, _Finder(found))


def source_of(mutant: Mutant) -> str:
    """The source of a mutant's module, with the fault. Raises MutationError."""
    spec = _spec(mutant.module)
    assert spec is not None and spec.origin is not None, mutant.module
    with open(spec.origin, encoding="utf-8") as file:
        text = file.read()
    if text.count(mutant.right) != 1:
        raise MutationError(f"{mutant.name}: {mutant.module} has {text.count(mutant.right)} times: {mutant.right}")
    return text.replace(mutant.right, mutant.wrong)


def _spec(module: str, path: Any = None) -> ModuleSpec | None:
    if path is None and "." in module:
        parent = __import__(module.rpartition(".")[0], fromlist=["_"])
        path = parent.__path__
    return PathFinder.find_spec(module, path)


class _Finder(MetaPathFinder):
    def __init__(self, mutant: Mutant) -> None:
        self._mutant = mutant

    def find_spec(self, fullname: str, path: Any, target: ModuleType | None = None) -> ModuleSpec | None:
        if fullname != self._mutant.module:
            return None
        spec = _spec(fullname, path)
        assert spec is not None and spec.origin is not None
        spec.loader = _Loader(fullname, spec.origin, source_of(self._mutant))
        return spec


class _Loader(SourceFileLoader):
    def __init__(self, fullname: str, path: str, source: str) -> None:
        super().__init__(fullname, path)
        self._source = source

    def get_code(self, fullname: str) -> Any:
        return compile(self._source, self.path, "exec")
