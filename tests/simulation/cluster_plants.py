"""Planted bugs of clusters: rules of replication taken out; see `controls.py`. Those of the controller are in
`controller_plants.py`."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any
from unittest import mock

Plant = Callable[[contextlib.ExitStack], None]


def _replace(stack: contextlib.ExitStack, target: object, attribute: str, value: object) -> None:
    stack.enter_context(mock.patch.object(target, attribute, value))


# --- Leaders ----------------------------------------------------------------------------------------------------------


def committed_without_followers(stack: contextlib.ExitStack) -> None:
    """A leader commits what it alone has."""
    from isthmus.core_broker.replication.leadership import Leadership

    _replace(stack, Leadership, "committed_end", lambda self, kept_end, leader_end: kept_end)


def followers_join_behind(stack: contextlib.ExitStack) -> None:
    """A follower that has fetched once is in sync, whatever it lacks."""
    from isthmus.core_broker.replication.leadership import Leadership

    def joins(self: Any, broker_id: int, high_watermark: int, own_start: int, leader_epoch: int) -> Any:
        if self._change is not None or broker_id not in self.followers or broker_id in self.isr:
            return None
        return self._ask((*self.isr, broker_id), leader_epoch)

    _replace(stack, Leadership, "joins", joins)


def followers_join_before_they_have_deleted(stack: contextlib.ExitStack) -> None:
    """A follower is in sync that begins before what was deleted while its broker was dead."""
    from isthmus.core_broker.replication.leadership import Leadership

    real = Leadership.joins

    def joins(self: Any, broker_id: int, high_watermark: int, own_start: int, leader_epoch: int) -> Any:
        return real(self, broker_id, high_watermark, -1, leader_epoch)

    _replace(stack, Leadership, "joins", joins)


def changes_count_before_they_are_agreed(stack: contextlib.ExitStack) -> None:
    """In-sync replicas are those that the leader has asked for, not also those that the controller has agreed to."""
    from isthmus.core_broker.replication.leadership import Leadership

    _replace(stack, Leadership, "maximal_isr", property(lambda self: (self._change or self).isr))


def lost_answers_mean_no(stack: contextlib.ExitStack) -> None:
    """A change of in-sync replicas whose answer did not come counts as refused."""
    from isthmus.core_broker.replication.isr_changes import IsrChanges

    def again(self: Any, asked: Any) -> None:
        for partition, change in asked.items():
            if partition.leadership is not None:
                partition.leadership.refused(change)

    _replace(stack, IsrChanges, "_again", again)


def too_few_in_sync_do_not_matter(stack: contextlib.ExitStack) -> None:
    """What is acknowledged by all has been acknowledged by fewer than min.insync.replicas."""
    from isthmus.core_broker.replication.partition import Partition

    def configure(self: Any, options: Any) -> None:
        real(self, {**options, "min.insync.replicas": 1})

    real = Partition.configure
    _replace(stack, Partition, "configure", configure)


def old_leaders_go_on(stack: contextlib.ExitStack) -> None:
    """A broker that leads no more goes on as if it did, under its old epoch."""
    from isthmus.core_broker.replication.manager import ReplicaManager

    real = ReplicaManager._follow

    def follow(self: Any, partition: Any, topic: Any, index: int) -> None:
        if partition.leads and topic.partitions[index].leader != self._node_id:
            return
        real(self, partition, topic, index)

    _replace(stack, ReplicaManager, "_follow", follow)


def new_leaders_do_not_begin_their_epoch(stack: contextlib.ExitStack) -> None:
    """A new leader goes on to write under the last epoch of its log, so that two leaders write under one."""
    from isthmus.core_broker.replication.partition import Partition

    real = Partition.begin_epoch

    def begin_epoch(self: Any, leader_epoch: int) -> None:
        real(self, leader_epoch)
        if self.leads:
            self.log.epochs.truncate_end(self.log.log_end_offset)

    real_append = Partition.append

    def append(self: Any, records: Any, origin: Any, wall_ms: int, expected: Any = None, inspection: Any = None) -> Any:
        known, self.core.leader_epoch = self.core.leader_epoch, max(self.log.epochs.latest, 0)
        try:
            return real_append(self, records, origin, wall_ms, expected, inspection)
        finally:
            self.core.leader_epoch = known

    _replace(stack, Partition, "begin_epoch", begin_epoch)
    _replace(stack, Partition, "append", append)


def leaders_count_what_is_not_on_disk(stack: contextlib.ExitStack) -> None:
    """Under durability=fsync, a leader counts itself before it has synced."""
    from isthmus.core_broker.replication.leadership import Leadership

    real = Leadership.committed_end
    _replace(stack, Leadership, "committed_end", lambda self, kept_end, leader_end: real(self, leader_end, leader_end))


# --- Followers --------------------------------------------------------------------------------------------------------


def divergence_is_ignored(stack: contextlib.ExitStack) -> None:
    """A follower appends to a log that has left its leader's."""
    from isthmus.core_broker.replication.fetching import Copy

    def wanted(self: Any) -> tuple[int, int, int, int]:
        log = self.partition.log
        return log.log_end_offset, self.partition.leader_epoch, -1, log.log_start_offset

    _replace(stack, Copy, "wanted", wanted)


def truncation_to_the_high_watermark(stack: contextlib.ExitStack) -> None:
    """A new follower cuts off what it does not know to be committed, as before KIP-101."""
    from isthmus.core_broker.replication.fetching import Fetcher

    real = Fetcher._take_one
    done: dict[Any, None] = {}

    async def take_one(self: Any, copy: Any, data: Any, wall_ms: int, connection: Any) -> None:
        if copy not in done:
            done[copy] = None
            if copy.partition.high_watermark < copy.partition.log.log_end_offset:
                await copy.partition.truncate_to(copy.partition.high_watermark)
                return
        await real(self, copy, data, wall_ms, connection)

    _replace(stack, Fetcher, "_take_one", take_one)


def followers_tell_before_they_have_synced(stack: contextlib.ExitStack) -> None:
    """Under durability=fsync, a follower asks for more before what it has is on disk."""
    from isthmus.core_broker.replication import fetching

    async def kept(partition: Any) -> None:
        pass

    _replace(stack, fetching, "_kept", kept)


def followers_serve_all_they_have(stack: contextlib.ExitStack) -> None:
    """A follower takes the end of its log for the high watermark."""
    from isthmus.core_broker.replication.partition import Partition

    _replace(stack, Partition, "followed", lambda self, mark: self.core.advance_high_watermark(self.log.log_end_offset))


def followers_believe_any_high_watermark(stack: contextlib.ExitStack) -> None:
    """A follower takes the leader's high watermark, though its own log ends before it."""
    from isthmus.core_broker.replication.partition import Partition

    _replace(stack, Partition, "followed", lambda self, mark: self.core.advance_high_watermark(mark))


def high_watermark_is_forgotten(stack: contextlib.ExitStack) -> None:
    """Whoever begins to lead or to follow begins with nothing committed."""
    from isthmus.core_broker.replication.partition import Partition

    real = Partition.recover
    _replace(stack, Partition, "recover", lambda self, high_watermark: real(self, 0))


def producers_are_not_followed(stack: contextlib.ExitStack) -> None:
    """A follower does not note who has written what it copies: as leader it takes everything for new."""
    from isthmus.core_broker.replication.partition import Partition
    from isthmus.core_broker.storage.log.append import Origin

    real = Partition.append

    def append(self: Any, records: Any, origin: Any, *rest: Any, **more: Any) -> Any:
        info = real(self, records, origin, *rest, **more)
        if origin is Origin.REPLICATION:
            self.log.producers.entries.clear()
        return info

    _replace(stack, Partition, "append", append)


def power_cuts_lose_nothing(stack: contextlib.ExitStack) -> None:
    """A broker that comes back after a power cut says that it has all it had."""
    from .files import SimFiles

    _replace(stack, SimFiles, "boot_id", lambda self: "the same")


def registrations_without_an_answer_are_losses(stack: contextlib.ExitStack) -> None:
    """A process after one that was registered, and ended before it heard of that, is another incarnation."""
    from isthmus.core_broker.storage.startup import last_process

    _replace(stack, last_process, "_successor", lambda found: None)


def brokers_lead_before_they_know_themselves(stack: contextlib.ExitStack) -> None:
    """A new process opens its partitions by metadata in which its last process leads."""
    from isthmus.core_broker import lifecycle

    _replace(stack, lifecycle, "knows", lambda image, broker_epoch: True)


def followers_do_not_save_where_they_begin(stack: contextlib.ExitStack) -> None:
    """A follower tells where its log begins, though only its memory has that."""
    from isthmus.core_broker.replication.fetching import Fetcher

    async def save_starts(self: Any) -> None:
        for copy in self._begin_later.values():
            copy.start = copy.partition.log.log_start_offset
            self._changed[copy.key] = copy
        self._begin_later.clear()

    _replace(stack, Fetcher, "_save_starts", save_starts)


def what_was_never_committed_stays(stack: contextlib.ExitStack) -> None:
    """A follower keeps all before its leader's log start, though the leader has forgotten what its epochs were."""
    from isthmus.core_broker.replication.fetching import Copy

    real = Copy.__init__

    def begin(self: Any, *given: Any) -> None:
        real(self, *given)
        self.has_joined = True

    _replace(stack, Copy, "__init__", begin)


# --- Coordinators -----------------------------------------------------------------------------------------------------


def coordinators_stay(stack: contextlib.ExitStack) -> None:
    """Who coordinated a group goes on to answer for it, though another broker does now."""
    from isthmus.core_broker.coordinators.runtime import CoordinatorRuntime

    _replace(stack, CoordinatorRuntime, "resign", lambda self, index: None)


def coordinators_begin_empty(stack: contextlib.ExitStack) -> None:
    """A new coordinator answers before it has read what is in its partition."""
    from isthmus.core_broker.coordinators.runtime import CoordinatorRuntime

    real = CoordinatorRuntime._load_soon

    def load_soon(self: Any, *shards: Any) -> None:
        real(self, *shards)
        for shard in shards:
            shard.failure = None

    _replace(stack, CoordinatorRuntime, "_load_soon", load_soon)


def commits_count_before_they_are_replicated(stack: contextlib.ExitStack) -> None:
    """A coordinator answers once its own log has an offset."""
    from isthmus.core_broker.coordinators.runtime import CoordinatorRuntime
    from isthmus.protocol.errors import ErrorCode

    _replace(stack, CoordinatorRuntime, "answer", lambda self, shard, respond, timeout_ms: respond(ErrorCode.NONE))


PLANTS: dict[str, Plant] = {
    "brokers-lead-before-they-know-themselves": brokers_lead_before_they_know_themselves,
    "changes-count-before-they-are-agreed": changes_count_before_they_are_agreed,
    "commits-count-before-they-are-replicated": commits_count_before_they_are_replicated,
    "committed-without-followers": committed_without_followers,
    "coordinators-begin-empty": coordinators_begin_empty,
    "coordinators-stay": coordinators_stay,
    "divergence-is-ignored": divergence_is_ignored,
    "followers-believe-any-high-watermark": followers_believe_any_high_watermark,
    "followers-do-not-save-where-they-begin": followers_do_not_save_where_they_begin,
    "followers-join-before-they-have-deleted": followers_join_before_they_have_deleted,
    "followers-join-behind": followers_join_behind,
    "followers-serve-all-they-have": followers_serve_all_they_have,
    "followers-tell-before-they-have-synced": followers_tell_before_they_have_synced,
    "high-watermark-is-forgotten": high_watermark_is_forgotten,
    "leaders-count-what-is-not-on-disk": leaders_count_what_is_not_on_disk,
    "lost-answers-mean-no": lost_answers_mean_no,
    "new-leaders-do-not-begin-their-epoch": new_leaders_do_not_begin_their_epoch,
    "old-leaders-go-on": old_leaders_go_on,
    "power-cuts-lose-nothing": power_cuts_lose_nothing,
    "producers-are-not-followed": producers_are_not_followed,
    "registrations-without-an-answer-are-losses": registrations_without_an_answer_are_losses,
    "too-few-in-sync-do-not-matter": too_few_in_sync_do_not_matter,
    "truncation-to-the-high-watermark": truncation_to_the_high_watermark,
    "what-was-never-committed-stays": what_was_never_committed_stays,
}
