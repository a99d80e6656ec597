"""What must hold of one broker whatever happens to it, the scenarios that check it, and planted bugs that break it.

The list is that of what brokers promise each other and their clients. test_scenarios.py sees to it that every bug is
found, and that each line has one.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Invariant:
    what: str
    scenarios: tuple[str, ...]
    plants: tuple[str, ...]


INVARIANTS = (
    Invariant(
        "what was acknowledged is not lost, but by a power cut where durability=page_cache takes that risk",
        ("producers", "wire-producers", "log", "disk-faults"),
        (
            "ack-before-write", "restart-believes-the-page-cache", "return-believes-the-page-cache",
            "recovery-without-crc", "written-again-in-place",
        ),
    ),
    Invariant(
        "an offset of a partition never has two values, nor does a reader see one that is lost",
        ("fetch-sessions", "producers"),
        ("reads-past-the-high-watermark",),
    ),
    Invariant(
        "the high watermark does not go back", ("fetch-sessions", "producers"), ("reads-past-the-high-watermark",)
    ),
    Invariant(
        "no read goes past the high watermark", ("fetch-sessions", "producers"), ("reads-past-the-high-watermark",)
    ),
    Invariant("leader epochs rise, each life has its own", ("fetch-sessions", "log"), ("leader-epoch-not-raised",)),
    Invariant(
        "a session leaves nothing out for good, and tells every change",
        ("fetch-sessions",),
        (
            "limit-leaves-out-for-good", "log-start-not-told", "forgotten-partitions-stay",
            "session-epochs-not-checked",
        ),
    ),
    Invariant(
        "idempotent producers: nothing twice, no gap, in order",
        ("producers", "wire-producers", "cuts", "compaction"),
        ("producers-not-recovered", "producers-compacted-away", "answers-out-of-order"),
    ),
    Invariant(
        "a group's committed offset does not go back unless somebody asks for it, and lives as long as it is to",
        ("groups", "offset-expiry"),
        ("commits-answered-before-they-are-safe", "commits-of-anybody", "expiry-decided-early"),
    ),
    Invariant("a group that was deleted stays away", ("groups",), ("deletions-answered-before-they-are-safe",)),
    Invariant("one owner a partition and generation", ("groups",), ("generation-not-read",)),
    Invariant(
        "every partition has its owner once a group is stable", ("groups",), ("members-not-awaited-after-a-restart",)
    ),
    Invariant(
        "the log start does not go back once it was told", ("retention", "fetch-sessions"),
        ("deleted-records-come-back",),
    ),
    Invariant(
        "retention takes what is past its bounds, in the end all of it, and never what is past the high watermark",
        ("retention",),
        (
            "retention-past-the-high-watermark", "retention-takes-one-more", "retention-from-the-newest-on",
            "retention-never",
        ),
    ),
    Invariant(
        "compaction keeps the last value of every key, and tombstones for as long as they are to stay",
        ("compaction",),
        (
            "cleaned-segment-not-synced", "compaction-before-sync", "interrupted-swap-thrown-away",
            "tombstones-at-once", "undecided-compacted",
        ),
    ),
    Invariant(
        "a clean stop leaves nothing to be looked through, and a power cut after it takes nothing",
        ("data-directory", "log"),
        ("clean-stop-not-synced",),
    ),
    Invariant(
        "a partition that was deleted stays away, and in the end its files are gone",
        ("data-directory",),
        ("partitions-come-back", "rest-of-deletions-forgotten"),
    ),
    Invariant("a mirror is a prefix of its source", ("wire-mirror", "mirror"), ("append-without-expected-offset",)),
    Invariant(
        "a stream app's tables are what its input says, whatever workers that hung write and compaction removes",
        ("streams", "stream-cluster", "zombies"),
        (
            "changelogs-are-read-uncommitted", "fetches-take-turns", "inputs-are-read-uncommitted",
            "markers-are-one-too-far", "refused-commits-change-nothing", "revoked-tasks-go-on",
            "rows-outside-the-transaction", "stores-are-not-rolled-back", "successors-do-not-wait",
            "tasks-begin-before-they-are-restored",
        ),
    ),
    Invariant(
        "a stream app's outputs are complete, and with exactly_once there once, in order, with tables and positions",
        ("streams", "stream-cluster", "zombies"),
        (
            "commits-are-not-fenced", "commits-within-an-event", "held-events-are-passed",
            "offsets-not-in-the-transaction", "outputs-are-not-awaited", "outputs-join-a-commit-under-way",
            "outputs-outside-the-transaction",
        ),
    ),
    Invariant(
        "a stream app of pipelines: what is between two parts is there once, and each part gives what its input says",
        ("stream-pipelines",),
        (
            "answers-of-before-count", "copies-are-taken-as-they-are", "disks-have-what-is-not-committed",
            "late-outputs-outside-the-transaction",
            "migrated-rows-are-not-written", "one-writer-is-waited-for", "references-are-forgotten",
            "regrouped-records-outside-the-transaction", "watermarks-begin-anew",
        ),
    ),
    Invariant(
        "a stream app whose inputs grow counts each record once, in the partition of its key, also after a restore",
        ("stream-growth",),
        (
            "bridged-topics-begin-anew", "bridges-keep-partitions", "forwarded-records-outside-the-transaction",
            "growth-is-not-looked-for", "lanes-are-committed-apart", "restored-rows-do-not-end",
            "restores-forget-offsets", "savepoints-have-all-between-steps", "savepoints-have-what-is-not-committed",
            "savepoints-leave-out-what-is-unread", "steps-of-ended-tasks-go-on",
        ),
    ),
    Invariant(
        "the quorum: one leader an epoch, and epochs do not go back",
        ("quorum",),
        ("votes-twice-in-an-epoch", "votes-not-on-disk", "half-of-the-votes-is-enough"),
    ),
    Invariant(
        "the quorum: what is committed is on a majority of disks, for ever and the same everywhere",
        ("quorum",),
        (
            "commits-earlier-epochs", "directories-do-not-matter", "divergence-not-noticed",
            "follower-fetches-before-it-has-flushed", "high-watermark-past-the-log", "late-answers-count",
            "leader-counts-what-is-not-on-disk", "leader-goes-on-with-its-epoch", "observers-count",
            "two-changes-of-the-voters-at-once", "votes-for-shorter-logs",
        ),
    ),
    Invariant(
        "the quorum: its high watermark does not go back, and a log begins with its snapshot",
        ("quorum",),
        ("new-voters-bring-the-high-watermark-back", "snapshot-of-the-wrong-epoch"),
    ),
    Invariant(
        "a cluster: what all in-sync replicas have acknowledged is not lost while one of them keeps its disk",
        ("cluster", "transactions"),
        (
            "changes-count-before-they-are-agreed", "committed-without-followers", "controllers-commit-alone",
            "elections-are-always-unclean", "followers-join-behind",
            "moves-do-not-wait", "power-cuts-lose-nothing", "registrations-without-an-answer-are-losses",
            "those-that-lost-stay-eligible", "too-few-in-sync-do-not-matter",
        ),
    ),
    Invariant(
        "a cluster: one leader of a partition an epoch, and one history: all replicas end with the same bytes",
        ("cluster",),
        (
            "divergence-is-ignored", "elections-forget-the-epoch", "new-leaders-do-not-begin-their-epoch",
            "old-leaders-go-on",
        ),
    ),
    Invariant(
        "a cluster: no high watermark goes back, or past its log, and nobody is given more",
        ("cluster",),
        ("followers-believe-any-high-watermark", "followers-serve-all-they-have", "high-watermark-is-forgotten"),
    ),
    Invariant(
        "a cluster: nobody leads or is in sync whose broker is fenced", ("cluster",),
        ("anybody-may-be-in-sync", "fenced-brokers-stay-in-sync"),
    ),
    Invariant(
        "a cluster: the metadata is the same at one offset, by log or by snapshot", ("cluster",),
        ("snapshots-leave-out-who-is-in-sync",),
    ),
    Invariant(
        "a cluster: no level of a feature is finalized that a broker does not know", ("cluster",),
        ("levels-that-some-do-not-know",),
    ),
    Invariant(
        "a cluster: what was deleted stays deleted, whoever leads, and nothing else goes", ("cluster",),
        ("followers-do-not-save-where-they-begin",),
    ),
    Invariant(
        "a cluster: idempotent producers: nothing twice, whoever leads", ("cluster",), ("producers-are-not-followed",)
    ),
    Invariant(
        "a cluster: committed offsets do not go back, whoever coordinates", ("cluster",),
        ("commits-count-before-they-are-replicated",),
    ),
    Invariant(
        "a cluster: once the faults end, all is in sync and served within a bound", ("cluster",),
        ("moves-never-end", "snapshots-leave-out-topics", "those-that-left-may-not-lead"),
    ),
    Invariant(
        "consumer groups: a partition is one member's at a time, by all that members can know", ("consumer-groups",),
        (
            "assigned-before-they-are-revoked", "classic-members-give-back-at-once",
            "conversions-forget-what-members-have", "moves-forget-what-members-have",
            "static-members-do-not-wait", "what-is-given-back-is-free",
        ),
    ),
    Invariant(
        "consumer groups: epochs of groups and members do not go back, whoever coordinates", ("consumer-groups",),
        ("cut-off-coordinators-hear-members", "moves-forget-the-last-epoch"),
    ),
    Invariant(
        "consumer groups: who has lost a partition commits nothing of it", ("consumer-groups",),
        ("commits-of-any-member",),
    ),
    Invariant(
        "consumer groups: in the end each partition that members want is owned, whoever died and whatever has grown",
        ("consumer-groups",),
        (
            "members-may-keep-what-they-have", "moves-forget-who-is-silent", "patterns-are-matched-once",
            "silent-members-stay", "topics-grow-unseen",
        ),
    ),
    Invariant(
        "transactions: all of one counts or nothing, in all partitions and as an offset, as its producer was told",
        ("transactions",),
        (
            "aborted-offsets-count", "added-partitions-are-not-written", "decisions-count-before-they-are-committed",
            "old-producers-go-on", "timed-out-producers-are-not-fenced",
        ),
    ),
    Invariant(
        "transactions: each has one marker in a partition, its own, which stays while there is something to decide",
        ("transactions",),
        (
            "compaction-takes-markers", "nobody-is-verified", "over-without-all-markers", "partitions-are-not-added",
        ),
    ),
    Invariant(
        "transactions: what is aborted or open is never read under read_committed, all that is committed is",
        ("transactions",),
        (
            "aborted-transactions-are-not-told", "followers-do-not-know-who-aborted",
            "open-transactions-are-read", "recovery-forgets-who-aborted",
        ),
    ),
    Invariant(
        "transactions: a stable offset was committed, is there when that is told, and does not go back",
        ("transactions",),
        ("markers-are-not-read", "offsets-count-at-once", "unstable-offsets-are-told"),
    ),
    Invariant(
        "transactions: none is open for ever, whoever dies or coordinates", ("transactions",),
        ("decided-transactions-are-left-to-others", "open-transactions-expire", "transactions-never-time-out"),
    ),
    Invariant(
        "transactions: no producer id is given twice, and no epoch of it", ("transactions",),
        (
            "new-producers-do-not-wait", "new-producers-share-an-epoch", "producer-ids-are-given-again",
            "two-decisions-at-once",
        ),
    ),
)  # fmt: skip
