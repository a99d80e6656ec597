"""CreateTopics (19): what makes a topic, and all the ways in which it is refused."""

from __future__ import annotations

from isthmus.protocol.messages import create_topics as m

from ..peer import Case, Scenarios
from ..requests import configs_request, create_request, metadata_request, new_topic, options

SCENARIOS = Scenarios()


def rows(*brokers_of_partitions: tuple[int, list[int]]) -> list[m.CreatableReplicaAssignment]:
    return [m.CreatableReplicaAssignment(partition_index=i, broker_ids=ids) for i, ids in brokers_of_partitions]


@SCENARIOS.success(19)
def creates_topics(case: Case) -> None:
    case.compare(create_request(new_topic(case.name)))
    case.await_topic(case.name, 2)


@SCENARIOS.success(19, ends=True)
def creates_a_topic_with_options(case: Case) -> None:
    case.compare(create_request(new_topic(case.name, configs=options(retention_ms="1000", cleanup_policy="compact"))))
    case.await_topic(case.name, 2)
    case.see(configs_request(case.name, ["retention.ms", "cleanup.policy"]))


@SCENARIOS.success(19, ends=True)
def values_with_spaces_around_them(case: Case) -> None:
    spaced = options(retention_ms=" 1000 ", cleanup_policy=" compact , delete ", preallocate=" FALSE ")
    case.compare(create_request(new_topic(case.name, configs=spaced)))
    case.await_topic(case.name, 2)
    case.see(configs_request(case.name, ["retention.ms", "cleanup.policy", "preallocate"]))


@SCENARIOS.success(19, ends=True)
def creates_a_topic_by_assignment(case: Case) -> None:
    node = case.peer.node_id
    case.compare(create_request(new_topic(case.name, -1, -1, assignments=rows((1, [node]), (0, [node])))))
    case.await_topic(case.name, 2)


@SCENARIOS.success(19, since=4, ends=True)
def creates_a_topic_by_defaults(case: Case) -> None:
    case.compare(create_request(new_topic(case.name, -1, -1)))
    case.await_topic(case.name)


@SCENARIOS.success(19, ends=True)
def validates_only(case: Case) -> None:
    case.compare(create_request(new_topic(case.name), validate_only=True))
    case.compare(create_request(new_topic(case.name, replicas=9), validate_only=True))


@SCENARIOS.error(19, ends=True)
def topics_within_no_time(case: Case) -> None:
    for timeout_ms in (0, -1):
        for validate_only in (False, True):
            wanted = create_request(new_topic(case.name), new_topic("no/name"), validate_only=validate_only)
            wanted.timeout_ms = timeout_ms
            case.compare(wanted)
    case.see(metadata_request(case.name, allow_auto_topic_creation=False))


@SCENARIOS.success(19, ends=True)
def some_of_several_topics(case: Case) -> None:
    wanted = [new_topic(case.name + "-a"), new_topic(case.name + "/b"), new_topic(case.name + "-c", partitions=1)]
    case.compare(create_request(*wanted))
    case.await_topic(case.name + "-a", 2)
    case.await_topic(case.name + "-c")


@SCENARIOS.success(19, ends=True)
def no_topics_to_create(case: Case) -> None:
    case.compare(create_request())


@SCENARIOS.success(19, ends=True)
def creates_a_topic_that_was_deleted(case: Case) -> None:
    case.topic()
    case.delete_topic()
    case.compare(create_request(new_topic(case.name, partitions=1)))
    case.await_topic(case.name)


@SCENARIOS.error(19)
def topic_that_exists(case: Case) -> None:
    case.topic()
    case.compare(create_request(new_topic(case.name)))
    case.compare(create_request(new_topic(case.name), validate_only=True))
    case.compare(create_request(new_topic(case.name, partitions=0, replicas=9)))


@SCENARIOS.error(19, ends=True)
def names_that_no_topic_can_have(case: Case) -> None:
    for name in ("no/name", "..", ".", "", "x" * 250, "ünicode", "a b"):
        case.compare(create_request(new_topic(name)))


@SCENARIOS.error(19, ends=True)
def names_that_collide(case: Case) -> None:
    name = case.name.replace("-", ".")
    case.name = name
    case.topic(".x")
    case.compare(create_request(new_topic(name + "_x")))
    case.compare(create_request(new_topic((name + "_x").replace(".", "_"))))


@SCENARIOS.error(19, ends=True)
def name_of_the_metadata_log(case: Case) -> None:
    case.compare(create_request(new_topic("__cluster_metadata"), validate_only=True))


@SCENARIOS.error(19, ends=True)
def numbers_of_partitions_that_cannot_be(case: Case) -> None:
    for partitions in (0, -2):
        case.compare(create_request(new_topic(case.name, partitions=partitions)))
    if case.version < 4:
        case.compare(create_request(new_topic(case.name, partitions=-1)))


@SCENARIOS.error(19, ends=True)
def too_many_partitions(case: Case) -> None:
    case.compare(create_request(new_topic(case.name, partitions=10_001), validate_only=True))
    case.compare(create_request(new_topic(case.name, partitions=2**31 - 1), validate_only=True))


@SCENARIOS.error(19, ends=True)
def numbers_of_replicas_that_cannot_be(case: Case) -> None:
    for replicas in (0, 2, 9, -2):
        case.compare(create_request(new_topic(case.name, replicas=replicas)))


@SCENARIOS.error(19, ends=True)
def options_of_new_topics_that_are_refused(case: Case) -> None:
    case.compare(create_request(new_topic(case.name, configs=options(no_such_option="1"))))
    case.compare(create_request(new_topic(case.name, configs=options(retention_ms="much"))))
    case.compare(create_request(new_topic(case.name, configs=options(retention_ms=None))))
    case.compare(create_request(new_topic(case.name, configs=options(retention_ms="1") + options(retention_ms="2"))))
    case.compare(create_request(new_topic(case.name, configs=options(retention_ms="-2", no_such_option=None))))


@SCENARIOS.error(19, ends=True)
def topic_named_twice(case: Case) -> None:
    case.compare(create_request(new_topic(case.name), new_topic(case.name)))
    case.compare(create_request(new_topic(case.name), new_topic(case.name), new_topic(case.name + "-b")))
    case.await_topic(case.name + "-b", 2)


@SCENARIOS.error(19, ends=True)
def assignments_that_are_refused(case: Case) -> None:
    node = case.peer.node_id

    def ask(partitions: int, replicas: int, *assigned: tuple[int, list[int]]) -> None:
        case.compare(create_request(new_topic(case.name, partitions, replicas, assignments=rows(*assigned))))

    ask(2, 1, (0, [node]))  # with a number of partitions and replicas
    ask(-1, 1, (0, [node]))
    ask(1, -1, (0, [node]))
    ask(-1, -1, (1, [node]))  # does not begin at 0
    ask(-1, -1, (0, [node]), (2, [node]))
    ask(-1, -1, (0, [node]), (0, [node]))
    ask(-1, -1, (-1, [node]))
    ask(-1, -1, (0, [4711]))
    ask(-1, -1, (0, [-1]))
    ask(-1, -1, (0, [node, node]))
    ask(-1, -1, (0, []))
    ask(-1, -1, (0, [node]), (1, []))
