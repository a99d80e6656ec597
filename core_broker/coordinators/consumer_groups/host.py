"""The consumer groups that this broker coordinates: decisions about them are written, and what follows is done.

A decision's records are one batch. They are written and replayed before anything else happens, so that the next
decision sees them; timers are set, and the answer is given once the records are committed.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from typing import Any

from ....protocol.errors import KafkaError
from ....protocol.messages import consumer_group_heartbeat as chb
from ..effects import SESSION, Ensure, Schedule, Timer, session
from ..group_shard import GroupShard
from ..patterns import Pattern, PatternError, match_in_turns
from ..runtime import CoordinatorRuntime, Shard
from ..timers import Timers
from . import leaving
from .decision import Decision, Rules, rebalance_timer
from .group import ConsumerGroup, Resolved
from .matching import matched
from .member import MemberState

RETRY_MS = 500  # after a timeout whose removal could not be written, as in Kafka

logger = logging.getLogger(__name__)

Place = tuple[Shard[GroupShard], str]  # a group's shard and its id


class ConsumerGroups:
    """rules: those of all decisions. The timers of members are named `(shard, (group id, timer))`."""

    def __init__(self, shards: CoordinatorRuntime[GroupShard], timers: Timers, rules: Rules) -> None:
        self.rules = rules
        self._shards = shards
        self._timers = timers
        self._to_match: dict[Place, tuple[str, ...]] = {}  # one entry a group at most
        self._matcher: asyncio.Task[None] | None = None

    async def stop(self) -> None:
        self._to_match.clear()
        if self._matcher is not None:
            self._matcher.cancel()
            await asyncio.gather(self._matcher, return_exceptions=True)

    def loaded(self, shard: Shard[GroupShard]) -> None:
        """All records of a shard have been read: the sessions of the members begin."""
        for group in shard.state.consumer_groups.values():
            timeout_ms = self.rules.options(group.group_id).session_timeout_ms
            for member in group.members.values():
                self._schedule(shard, group.group_id, session(member.member_id), timeout_ms)
                if member.state is MemberState.UNREVOKED_PARTITIONS:
                    self._schedule(
                        shard, group.group_id, rebalance_timer(member.member_id), member.rebalance_timeout_ms
                    )

    def commit(self, shard: Shard[GroupShard], group_id: str, decision: Decision) -> None:
        """Write the records of a decision, and do what follows but the answer. Raises KafkaError: nothing was done, but
        the session of a member that was heard goes on, as in Kafka."""
        try:
            self._shards.write(shard, decision.records)
        except KafkaError:
            self._go_on(shard, group_id, decision)
            raise
        for effect in decision.effects:
            if isinstance(effect, Schedule):
                self._schedule(shard, group_id, effect.timer, effect.delay_ms)
            elif isinstance(effect, Ensure):
                if (shard, (group_id, effect.timer)) not in self._timers:
                    self._schedule(shard, group_id, effect.timer, effect.delay_ms)
            else:
                self._timers.cancel((shard, (group_id, effect.timer)))
        if decision.classic is not None:
            shard.state.converted(group_id, decision.classic)
        group = shard.state.consumer_groups.get(group_id)
        if group is None:
            return
        if decision.refreshed_at is not None:
            group.refreshed_at = decision.refreshed_at
        if decision.patterns:
            self._match_soon(shard, group_id, decision.patterns)

    def stays(self, shard: Shard[GroupShard], group_id: str, member_id: str, epoch: int) -> chb.Response:
        """The answer to a member that is there, and whose session goes on."""
        options = self.rules.options(group_id)
        self._schedule(shard, group_id, session(member_id), options.session_timeout_ms)
        return chb.Response(
            member_id=member_id, member_epoch=epoch, heartbeat_interval_ms=options.heartbeat_interval_ms
        )  # fmt: skip

    def _go_on(self, shard: Shard[GroupShard], group_id: str, decision: Decision) -> None:
        for effect in decision.effects:
            name = (shard, (group_id, effect.timer))
            if isinstance(effect, Schedule) and effect.timer[0] == SESSION and name in self._timers:
                self._timers.schedule(name, effect.delay_ms)

    def _schedule(self, shard: Shard[GroupShard], group_id: str, timer: Timer, delay_ms: int) -> None:
        self._timers.schedule((shard, (group_id, timer)), delay_ms)

    def fired(self, shard: Shard[GroupShard], group_id: str, timer: Timer) -> None:
        """A timer of a member has expired."""
        group = shard.state.consumer_groups.get(group_id)
        if group is None:
            return
        decision = leaving.fired(group, timer, self.rules)
        if decision is None:
            return
        logger.info("group %s: member %s is removed, its %s timeout has ended", group_id, timer[1], timer[0])
        self._commit_own(shard, group, decision, retry=lambda: self._schedule(shard, group_id, timer, RETRY_MS))

    def _commit_own(
        self, shard: Shard[GroupShard], group: ConsumerGroup, decision: Decision, retry: Callable[[], None]
    ) -> None:
        """Write a decision that nobody has asked for."""
        try:
            self.commit(shard, group.group_id, decision)
        except KafkaError as error:
            logger.error("group %s could not be written: %s", group.group_id, error)
            retry()

    # --- Regular expressions ------------------------------------------------------------------------------------------

    def _match_soon(self, shard: Shard[GroupShard], group_id: str, patterns: tuple[str, ...]) -> None:
        """Match a group's patterns apart from requests, unless that is to be done already."""
        self._to_match.setdefault((shard, group_id), patterns)
        if self._matcher is None:
            self._matcher = asyncio.get_running_loop().create_task(self._match_all(), name="match patterns of groups")

    async def _match_all(self) -> None:
        try:
            while self._to_match:
                place = next(iter(self._to_match))
                found = await self._match(self._to_match[place])
                if self._to_match.pop(place, None) is not None:
                    self._take(place, found)
        finally:
            self._matcher = None

    async def _match(self, patterns: tuple[str, ...]) -> Mapping[str, Resolved]:
        topics = self.rules.topics
        version, now_ms, names = topics.version, self.rules.wall_ms(), list(topics.names)
        found: dict[str, Resolved] = {}
        for text in patterns:
            try:
                pattern = Pattern(text)
            except PatternError as error:
                logger.error("the regular expression %r of a group is left out: %s", text, error)
                continue
            found[text] = Resolved(await match_in_turns(pattern, names), version, now_ms)
        return found

    def _take(self, place: Place, found: Mapping[str, Resolved]) -> None:
        shard, group_id = place
        group: Any = shard.state.consumer_groups.get(group_id)
        if group is None or self._shards.shards.get(shard.index) is not shard:
            return
        self._commit_own(shard, group, matched(group, found, self.rules), retry=lambda: None)  # a heartbeat asks again
