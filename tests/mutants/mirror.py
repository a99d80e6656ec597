"""Bugs of mirrors: sources whose log begins past 0, refusals in both directions, trouble that is hidden."""

from __future__ import annotations

from tests.mutants import Mutant

CARRIER, DISCOVERY = "mirror/carrier.py", "mirror/discovery.py"
APPEND = "core_broker/server/apis/mirror_append.py"
OF_CARRIER = "tests/mirror/test_carrier.py::test_"
OF_STATUS = "tests/mirror/test_status.py::test_"
OF_APPEND = "tests/core_broker/server/apis/test_mirror_append.py::test_"
SIMULATED = "tests/simulation/test_mirror.py::test_"

RANGES = f"{OF_CARRIER}an_offset_out_of_range_is_a_beginning_a_gap_or_a_loss_of_the_source"
EMPTY_COPY = f"{OF_CARRIER}an_empty_copy_is_told_where_the_source_begins"
BEGINNINGS = f"{SIMULATED}a_copy_begins_where_its_source_does_and_keeps_offsets"
REFUSED = f"{OF_APPEND}what_does_not_belong_or_does_not_follow_is_refused"
TAKEN = f"{OF_APPEND}what_follows_is_appended_as_it_is"
BEGINS = f"{OF_APPEND}a_log_that_never_held_a_record_begins_where_the_source_does"
NOT_BEGUN = f"{OF_APPEND}a_request_that_may_not_append_does_not_move_where_a_log_begins"
BEGUN_ONCE = f"{OF_APPEND}a_log_that_has_begun_or_holds_records_does_not_begin_again"
STATUS = f"{SIMULATED}a_status_topic_that_was_deleted_or_lost_its_end_is_written_again"
OPTIONS = f"{SIMULATED}a_copy_follows_the_options_of_its_source_that_say_how_long_records_are_kept"
ONE_TOPIC = f"{SIMULATED}a_topic_whose_options_may_not_be_read_fails_alone_and_is_tried_again"

MUTANTS: tuple[Mutant, ...] = (
    # --- Sources whose log begins past 0
    Mutant(
        "a new copy begins at its source's end",
        CARRIER,
        "each.fetch_offset = start  #",
        "each.fetch_offset = end  #",
        (RANGES, BEGINNINGS),
    ),
    Mutant(
        "a copy that ends where its source begins is taken for a gap",
        CARRIER,
        "if each.fetch_offset < start:",
        "if each.fetch_offset <= start:",
        (RANGES,),
    ),
    Mutant(
        "a copy that ends where its source ends is taken for diverged",
        CARRIER,
        "elif each.fetch_offset > end:",
        "elif each.fetch_offset >= end:",
        (RANGES,),
    ),
    Mutant(
        "the source's log start is not told",
        CARRIER,
        "source_log_start_offset=log_start_offset,",
        "source_log_start_offset=-1,",
        (EMPTY_COPY, BEGINNINGS),
    ),
    Mutant(
        "the copy of an emptied source begins only with its first record",
        CARRIER,
        "if answer.high_watermark <= answer.log_start_offset and",
        "if answer.high_watermark < answer.log_start_offset and",
        (EMPTY_COPY, BEGINNINGS),
    ),
    Mutant(
        "a copy that holds records is told to begin again",
        "mirror/partition.py",
        "if not self.target_is_empty or log_start_offset <= 0:",
        "if log_start_offset <= 0:",
        (EMPTY_COPY,),
    ),
    Mutant(
        "the first batch is left out where the log start is inside it",
        APPEND,
        'offset = min(offset, int.from_bytes(asked.records[:8], "big", signed=True))',
        "pass",
        (BEGINS, BEGINNINGS),
    ),
    Mutant(
        "records before the source's log start are served",
        APPEND,
        "if was_empty and end < asked.source_log_start_offset < partition.log.log_end_offset:",
        "if was_empty and end < asked.source_log_start_offset < 0:",
        (BEGINS, BEGINNINGS),
    ),
    Mutant(
        "the log start inside a batch is not kept on disk",
        APPEND,
        "context.services.spawn(context.services.replicas.save_log_starts(),",
        "context.services.spawn(partition.settle(),",
        (BEGINNINGS,),
    ),
    Mutant(
        "a log is thrown away though another worker has appended to it meanwhile",
        "core_broker/replication/partition.py",
        "await self.log.reset_to(offset, expected_next_offset=0)",
        "await self.log.reset_to(offset)",
        (BEGUN_ONCE,),
    ),
    Mutant(
        "anybody moves where an empty log begins",
        APPEND,
        "if partition.log.log_end_offset != 0 or not _may_append(request, topic, asked, partition):",
        "if partition.log.log_end_offset != 0:",
        (NOT_BEGUN,),
    ),
    # --- Refusals of MirrorAppend
    Mutant(
        "a link writes into a topic that no link owns",
        APPEND,
        "if partition.mirror_link != request.link_id:",
        "if partition.mirror_link and partition.mirror_link != request.link_id:",
        (REFUSED,),
    ),
    Mutant(
        "a request without a link is taken",
        APPEND,
        "if not request.link_id:",
        "if request.link_id is None:",
        (REFUSED,),
    ),
    Mutant(
        "an older link epoch is taken",
        APPEND,
        "if request.link_epoch < known:",
        "if request.link_epoch < known - 1:",
        (REFUSED,),
    ),
    Mutant(
        "the present link epoch is refused",
        APPEND,
        "if request.link_epoch < known:",
        "if request.link_epoch <= known:",
        (TAKEN,),
    ),
    Mutant(
        "another cluster's records are taken",
        APPEND,
        "if cluster and cluster != request.source_cluster_id:",
        "if cluster is None and cluster != request.source_cluster_id:",
        (REFUSED,),
    ),
    Mutant(
        "records of a topic that was created again are taken",
        APPEND,
        "if source and source != uuid_to_str(topic.source_topic_id):",
        "if source is None and source != uuid_to_str(topic.source_topic_id):",
        (REFUSED,),
    ),
    Mutant(
        "a lower previous epoch is taken",
        APPEND,
        "if asked.previous_leader_epoch not in (NOT_TOLD, known):",
        "if asked.previous_leader_epoch > known:",
        (REFUSED,),
    ),
    Mutant(
        "a higher previous epoch is taken",
        APPEND,
        "if asked.previous_leader_epoch not in (NOT_TOLD, known):",
        "if NOT_TOLD < asked.previous_leader_epoch < known:",
        (REFUSED,),
    ),
    Mutant(
        "the present source epoch is refused",
        APPEND,
        "if 0 <= asked.source_leader_epoch < known:",
        "if 0 <= asked.source_leader_epoch <= known:",
        (TAKEN,),
    ),
    Mutant(
        "an append that is early is called diverged",
        APPEND,
        "if asked.range_from == end:  #",
        "if asked.range_from >= end:  #",
        (REFUSED,),
    ),
    # --- Trouble that is hidden
    Mutant(
        "what the source refuses is no state",
        CARRIER,
        "        elif answer.error_code:\n            raise KafkaError.of(answer.error_code)",
        "        elif answer.error_code:\n            each.doubt()",
        (f"{OF_CARRIER}what_the_source_refuses_for_good_is_a_state_of_its_partition_and_asked_for_seldom",),
    ),
    Mutant(
        "a batch that the source does not give counts as equal",
        "mirror/verify.py",
        "if answer.error_code not in (ErrorCode.NONE, ErrorCode.OFFSET_OUT_OF_RANGE):",
        "if answer.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:",
        (f"{OF_CARRIER}a_partition_that_cannot_be_compared_is_not_carried",),
    ),
    Mutant(
        "a probe is held against what was fetched and not yet appended",
        CARRIER,
        "== (each.append_offset, each.append_epoch):",
        "== (each.append_offset, each.fetch_epoch):",
        (f"{OF_CARRIER}a_probe_is_held_against_what_was_appended_and_not_against_what_was_fetched_since",),
    ),
    Mutant(
        "a topic whose options may not be read is left out",
        DISCOVERY,
        "        return topic in self.refused\n",
        "        return False\n",
        (ONE_TOPIC,),
    ),
    Mutant(
        "a topic whose options may not be read is not tried again",
        DISCOVERY,
        "self.refused[name].retry_at <= now]",
        "self.refused[name].retry_at < 0]",
        (ONE_TOPIC,),
    ),
    Mutant(
        "options that the copy has already do not follow",
        DISCOVERY,
        "if present.get(name) != value}",
        "if name not in present}",
        (OPTIONS,),
    ),
    Mutant(
        "a status topic whose leader lost its end is believed to be whole",
        "mirror/status.py",
        "if incarnation != self._incarnation:",
        "if incarnation[0] != self._incarnation[0]:",
        (f"{OF_STATUS}changes_are_written_and_all_of_it_where_the_topic_may_have_lost_something",),
    ),
    Mutant(
        "a status topic that is gone is not made again",
        "mirror/status.py",
        "        if not self.target.partitions(STATUS_TOPIC):",
        "        if not self.target.partitions(STATUS_TOPIC) and not self._written:",
        (STATUS,),
    ),
    Mutant(
        "a status that was not written is not written again",
        "mirror/status.py",
        "            self._written[tp] = None\n            await",
        "            self._written[tp] = what\n            await",
        (f"{OF_STATUS}changes_are_written_and_all_of_it_where_the_topic_may_have_lost_something",),
    ),
    Mutant(
        "blanks around expressions stay",
        "mirror/link.py",
        'return re.split(r"\\s*,\\s*(?![^{}]*\\})", text.strip())',
        'return re.split(r",(?![^{}]*\\})", text)',
        ("tests/mirror/test_link.py::test_blanks_around_expressions_are_dropped_and_those_inside_stay",),
    ),
)
