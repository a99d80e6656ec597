"""Plain outcomes of requests that a handler answers, where no compiled short way does."""

from __future__ import annotations

from tests.mutants import Mutant

APIS = "core_broker/server/apis/"
PRODUCE, FETCH, LIST_OFFSETS, METADATA = (
    f"{APIS}{name}.py" for name in ("produce", "fetch", "list_offsets", "metadata")
)
OF = "tests/core_broker/server/apis/test_long_way.py::test_"
ACKS = f"{OF}acks_decide_whether_a_produce_is_answered"
REFUSED = f"{OF}a_produce_that_is_refused_appends_nothing"
COMMITTED = f"{OF}a_produce_is_answered_when_its_records_are_committed_or_its_time_is_over"
GIVEN = f"{OF}a_fetch_gives_what_is_committed_from_an_offset_on"
FETCH_REFUSED = f"{OF}a_fetch_that_is_refused_is_told_so_at_once"
TRANSACTION = f"{OF}an_open_transaction_is_hidden_from_who_reads_what_is_committed"
LISTED = f"{OF}offsets_are_listed_by_timestamp"
NOT_LISTED = f"{OF}offsets_that_cannot_be_listed_are_an_error"
TOLD = f"{OF}metadata_is_of_all_topics_or_of_those_that_are_asked_for"
CREATED = f"{OF}metadata_creates_a_topic_where_client_and_broker_allow_it"

MUTANTS: tuple[Mutant, ...] = (
    Mutant(
        "acks=0 is answered",
        PRODUCE,
        "        if untold is not None:\n            raise untold\n        return None\n",
        "        if untold is not None:\n            raise untold\n",
        (ACKS,),
    ),
    Mutant(
        "a refusal with acks=0 does not end the connection",
        PRODUCE,
        "        if untold is not None:\n            raise untold\n        return None\n",
        "        return None\n",
        (REFUSED,),
    ),
    Mutant(
        "any number of acks is taken",
        PRODUCE,
        "                if acks not in ACKS:\n",
        "                if acks is None:\n",
        (REFUSED,),
    ),
    Mutant(
        "a client writes to an internal topic",
        PRODUCE,
        "                if name in INTERNAL:\n",
        "                if index in INTERNAL:\n",
        (REFUSED,),
    ),
    Mutant(
        "a produce does not wait for its commit",
        PRODUCE,
        "    if waits:\n        return _wait(waits, acks, response, request.timeout_ms, context)\n",
        "",
        (COMMITTED,),
    ),
    Mutant(
        "a produce whose time is over is told as appended",
        PRODUCE,
        "                answer.error_code = error.code  # the offset stays, as in Kafka: it is in the log\n",
        "",
        (COMMITTED,),
    ),
    Mutant(
        "a fetch does not look at the client's leader epoch",
        FETCH,
        "            partition.check_epoch(wanted.current_leader_epoch)\n",
        "",
        (FETCH_REFUSED,),
    ),
    Mutant(
        "a fetch that is refused waits",
        FETCH,
        "        if data.error_code or data.diverging_epoch is not None or",
        "        if data.diverging_epoch is not None or",
        (FETCH_REFUSED,),
    ),
    Mutant(
        "a fetch gives records of open transactions",
        FETCH,
        "read_committed=committed, min_one",
        "read_committed=False, min_one",
        (TRANSACTION,),
    ),
    Mutant(
        "the end of what is committed is not told apart",
        LIST_OFFSETS,
        "if request.isolation_level == 1 else",
        "if request.isolation_level == 2 else",
        (TRANSACTION,),
    ),
    Mutant(
        "the earliest offset is 0",
        LIST_OFFSETS,
        "        answer.offset = partition.log.log_start_offset\n",
        "        answer.offset = 0\n",
        (LISTED,),
    ),
    Mutant(
        "timestamps of later versions are answered",
        LIST_OFFSETS,
        "context.version < SINCE[timestamp]",
        "context.version < 0",
        (LISTED,),
    ),
    Mutant(
        "a partition that is asked for twice is answered",
        LIST_OFFSETS,
        "if partition.partition_index in twice:",
        "if partition in twice:",
        (NOT_LISTED,),
    ),
    Mutant(
        "any isolation level is taken",
        LIST_OFFSETS,
        "    if request.isolation_level not in ISOLATION_LEVELS:\n",
        "    if request.isolation_level is None:\n",
        (NOT_LISTED,),
    ),
    Mutant(
        "no names are all names in any version",
        METADATA,
        "(context.version == 0 and not asked)",
        "not asked",
        (TOLD,),
    ),
    Mutant(
        "topics are asked for by id before that is in a version",
        METADATA,
        "if context.version < BY_ID_SINCE and",
        "if context.version < 0 and",
        (TOLD,),
    ),
    Mutant(
        "metadata creates topics that the client did not ask for",
        METADATA,
        "if not request.allow_auto_topic_creation or not services",
        "if not services",
        (CREATED,),
    ),
    Mutant(
        "metadata creates topics that the broker does not allow",
        METADATA,
        'or not services.config["auto.create.topics.enable"]',
        'or services.config["auto.create.topics.enable"] is None',
        (CREATED,),
    ),
)
