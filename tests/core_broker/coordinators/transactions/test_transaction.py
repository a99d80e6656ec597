"""Producer ids and epochs: who gets which, who is fenced, and what a client is told that comes again."""

from __future__ import annotations

from dataclasses import dataclass, replace
from random import Random
from typing import Any

import pytest

from isthmus.core_broker.coordinators.transactions.states import LIVE, State
from isthmus.core_broker.coordinators.transactions.transaction import (
    LAST_EPOCH,
    NEEDS_ID,
    NO_EPOCH,
    NO_ID,
    Decision,
    Given,
    Transaction,
    abort_timed_out,
    add_partitions,
    completed,
    end,
    end_raising,
    init_producer_id,
    verify,
)
from isthmus.protocol.errors import ErrorCode as E

NOW = 1_000
PARTITION = ("t", 0)
PRESENT = Given(7, 3)
NEW = Transaction("x", 7)
EMPTY = Transaction("x", 7, epoch=3, timeout_ms=60_000, previous_producer_id=7)
ONGOING = replace(EMPTY, state=State.ONGOING, partitions=frozenset([PARTITION]), start_ms=900)


def init(known: Transaction, given: Given | None = None, *, busy=False, level=2, fresh=None) -> Decision:
    return init_producer_id(known, given, 60_000, busy=busy, level=level, fresh_id=fresh, now_ms=NOW)


def add(known: Transaction, given: Given = PRESENT, *, busy=False, version=0, level=2) -> Decision:
    return add_partitions(known, given, [PARTITION], busy=busy, version=version, level=level, now_ms=NOW)


def commit(known: Transaction, given: Given = PRESENT, *, busy=False) -> Decision:
    return end(known, given, commit=True, busy=busy, now_ms=NOW)


def commit_raising(known: Transaction, given: Given = PRESENT, *, busy=False, level=2, fresh=None) -> Decision:
    return end_raising(known, given, commit=True, busy=busy, level=level, fresh_id=fresh, now_ms=NOW)


def done(decision: Decision, answer: E = E.NONE) -> Transaction:
    assert decision.answer == answer and decision.new is not None
    return decision.new


def ids(known: Transaction) -> tuple[int, int, int]:
    return known.producer_id, known.epoch, known.last_epoch


# --- InitProducerId ---------------------------------------------------------------------------------------------------


def test_a_new_producer_begins_with_epoch_0_and_each_restart_fences_the_one_before() -> None:
    first = done(init(NEW))
    assert ids(first) == (7, 0, NO_EPOCH) and (first.state, first.timeout_ms, first.start_ms) == (
        State.EMPTY,
        60_000,
        -1,
    )
    assert ids(done(init(first))) == (7, 1, NO_EPOCH)
    assert ids(done(init(NEW, Given(99, 5)))) == (7, 0, NO_EPOCH), "one that was forgotten begins anew"


def test_a_producer_that_names_its_epoch_gets_the_next_one_and_may_ask_again() -> None:
    raised = done(init(EMPTY, Given(7, 3)))
    assert ids(raised) == (7, 4, 3)
    assert ids(done(init(raised, Given(7, 3)))) == (7, 4, 3), "the answer was lost"
    for given in (Given(7, 2), Given(7, 5), Given(8, 4)):
        assert init(raised, given) == Decision(E.PRODUCER_FENCED)
    other = done(init(raised))
    assert init(other, Given(7, 4)) == Decision(E.PRODUCER_FENCED), "another one has started since"


def test_an_ongoing_transaction_is_aborted_first_and_its_producer_fenced() -> None:
    for level in (0, 1, 2):
        aborting = done(init(ONGOING, level=level), E.CONCURRENT_TRANSACTIONS)
        assert (aborting.state, aborting.epoch, aborting.partitions) == (State.PREPARE_ABORT, 4, ONGOING.partitions)
        assert ids(done(init(completed(aborting, NOW), level=level))) == (7, 5, NO_EPOCH)
        again = init(completed(aborting, NOW), Given(7, 3), level=level)
        assert (again.answer == E.PRODUCER_FENCED) is (level < 2), "it is told of the epoch that fenced it, or not"
    assert ids(done(init(ONGOING, Given(7, 1)), E.CONCURRENT_TRANSACTIONS)) == (7, 4, 3), "whoever asks"
    assert init(ONGOING, Given(8, 3)) == Decision(E.PRODUCER_FENCED)


def test_an_id_whose_epochs_are_used_up_is_followed_by_another() -> None:
    last = replace(EMPTY, epoch=LAST_EPOCH)
    assert init(last) is NEEDS_ID
    assert ids(done(init(last, fresh=8))) == (8, 0, NO_EPOCH)
    going_on = done(init(last, Given(7, LAST_EPOCH), fresh=8))
    assert ids(going_on) == (8, 0, LAST_EPOCH)
    assert ids(done(init(going_on, Given(7, LAST_EPOCH)))) == (8, 0, LAST_EPOCH), "the answer was lost"
    assert init(going_on, Given(7, LAST_EPOCH - 1)) == Decision(E.PRODUCER_FENCED)
    assert init(last, Given(7, 1), fresh=8) == Decision(E.PRODUCER_FENCED)


@pytest.mark.parametrize("level", [1, 2])
def test_the_last_epoch_can_still_be_fenced(level: int) -> None:
    last = replace(ONGOING, epoch=LAST_EPOCH)
    decision = init(last, level=level, fresh=8)
    assert (init(last, level=level) is NEEDS_ID) is (level == 2)
    aborting = done(decision, E.CONCURRENT_TRANSACTIONS)
    assert (aborting.producer_id, aborting.epoch) == (7, LAST_EPOCH + 1)
    after = completed(aborting, NOW)
    assert (after.producer_id, after.epoch) == ((8, 0) if level == 2 else (7, LAST_EPOCH + 1))
    assert done(init(after, level=level, fresh=9)).producer_id == (8 if level == 2 else 9)


# --- AddPartitionsToTxn -----------------------------------------------------------------------------------------------


def test_the_first_partition_starts_the_transaction_and_others_join_it() -> None:
    begun = done(add(EMPTY))
    assert (begun.state, begun.start_ms, begun.update_ms) == (State.ONGOING, NOW, NOW)
    more = add_partitions(ONGOING, Given(7, 3), [("u", 1)], busy=False, version=2, level=2, now_ms=NOW)
    assert done(more).partitions == {PARTITION, ("u", 1)} and done(more).start_ms == 900
    assert done(more).client_version == 2
    assert add(ONGOING) == Decision(E.NONE), "nothing is written for what is in it"


def test_a_level_whose_records_cannot_name_newer_clients_refuses_them() -> None:
    assert add(EMPTY, version=2, level=0) == Decision(E.UNSUPPORTED_VERSION)
    assert done(add(EMPTY, version=2, level=1)).client_version == 2
    assert commit_raising(ONGOING, level=0) == Decision(E.UNSUPPORTED_VERSION)
    assert commit_raising(EMPTY, level=0) == Decision(E.INVALID_TXN_STATE)


def test_strangers_and_fenced_producers_are_told_apart() -> None:
    for ask in (add, commit, commit_raising):
        assert ask(ONGOING, Given(8, 3)) == Decision(E.INVALID_PRODUCER_ID_MAPPING)
        assert ask(ONGOING, Given(7, 1)) == Decision(E.PRODUCER_FENCED)
        assert ask(ONGOING, Given(7, 4)) == Decision(E.PRODUCER_FENCED)
    assert verify(ONGOING, Given(8, 3), [PARTITION]) == {PARTITION: E.INVALID_PRODUCER_ID_MAPPING}
    assert verify(ONGOING, Given(7, 2), [PARTITION]) == {PARTITION: E.PRODUCER_FENCED}


def test_while_a_record_is_on_the_way_everybody_waits() -> None:
    busy = Decision(E.CONCURRENT_TRANSACTIONS)
    stranger = Given(8, 1)
    assert init(EMPTY, stranger, busy=True) == add(EMPTY, stranger, busy=True) == busy
    assert commit_raising(ONGOING, stranger, busy=True) == busy
    assert commit(ONGOING, busy=True) == busy
    assert commit(ONGOING, stranger, busy=True) == Decision(E.INVALID_PRODUCER_ID_MAPPING), "older clients: as in Kafka"
    deciding = replace(ONGOING, state=State.PREPARE_COMMIT)
    assert init(deciding, stranger) == add(deciding, stranger) == commit_raising(deciding, stranger) == busy


# --- EndTxn -----------------------------------------------------------------------------------------------------------


def test_older_clients_keep_their_epoch() -> None:
    decided = done(commit(ONGOING))
    assert (decided.state, ids(decided), decided.client_version) == (State.PREPARE_COMMIT, (7, 3, NO_EPOCH), 0)
    over = completed(decided, NOW)
    assert (over.state, ids(over), over.partitions) == (State.COMPLETE_COMMIT, (7, 3, NO_EPOCH), frozenset())
    assert commit(over) == Decision(E.NONE) and done(add(over)).start_ms == NOW


def test_newer_clients_get_the_next_epoch_with_every_end_and_may_ask_again() -> None:
    decided = done(commit_raising(ONGOING))
    assert (ids(decided), decided.after, decided.client_version) == ((7, 4, 3), (7, 4), 2)
    over = completed(decided, NOW)
    assert commit_raising(over) == Decision(E.NONE), "the answer was lost"
    assert commit_raising(over, Given(7, 4)) == Decision(E.INVALID_TXN_STATE), "a commit of nothing"
    aborted = end_raising(over, Given(7, 4), commit=False, busy=False, level=2, fresh_id=None, now_ms=NOW)
    assert ids(done(aborted)) == (7, 5, 4) and done(aborted).start_ms == NOW, (
        "nothing was added, and it begins and ends"
    )
    assert commit_raising(over, Given(7, 2)) == Decision(E.PRODUCER_FENCED)


def test_the_end_of_the_last_epoch_gives_another_producer_id_and_may_be_asked_again() -> None:
    last = replace(ONGOING, epoch=LAST_EPOCH)
    assert commit_raising(last, Given(7, LAST_EPOCH)) is NEEDS_ID
    decided = done(commit_raising(last, Given(7, LAST_EPOCH), fresh=8))
    assert (decided.producer_id, decided.epoch, decided.next_producer_id) == (7, LAST_EPOCH + 1, 8)
    assert decided.after == (8, 0)
    over = completed(decided, NOW)
    assert (over.producer_id, over.epoch, over.previous_producer_id, over.next_producer_id) == (8, 0, 7, NO_ID)
    assert commit_raising(over, Given(7, LAST_EPOCH)) == Decision(E.NONE) and over.after == (8, 0)
    assert commit_raising(over, Given(7, LAST_EPOCH - 1)) == Decision(E.INVALID_PRODUCER_ID_MAPPING)
    begun = done(add(over, Given(8, 0), version=2))
    assert commit_raising(begun, Given(7, LAST_EPOCH)) == Decision(E.INVALID_PRODUCER_ID_MAPPING), "too late for that"


def test_a_transaction_that_timed_out_is_aborted_and_its_producer_fenced() -> None:
    for level in (0, 2):
        aborting = done(abort_timed_out(ONGOING, level=level, fresh_id=None, now_ms=NOW))
        assert (aborting.state, aborting.epoch) == (State.PREPARE_ABORT, 4)
        assert commit(completed(aborting, NOW)) == Decision(E.PRODUCER_FENCED)


# --- Any order of events ----------------------------------------------------------------------------------------------


@dataclass
class Producer:
    """What a producer believes: its id and epoch, and whether it has added anything."""

    producer_id: int
    epoch: int
    raises: bool  # it knows of transaction.version 2
    is_open: bool = False

    @property
    def given(self) -> Given:
        return Given(self.producer_id, self.epoch)


class Model:
    """Who may write, kept in the simplest way: producers by the order in which they started, the last one counts.

    `given` has every producer id and epoch that was ever told to a producer, so that none is told to two.
    """

    def __init__(self, chance: Random, level: int) -> None:
        self.chance = chance
        self.level = level
        self.known = Transaction("x", 1)
        self.next_id = 2
        self.owner: Producer | None = None
        self.zombies: list[Producer] = []
        self.told: dict[tuple[int, int], Producer] = {}
        self.ended: list[tuple[int, int]] = []  # under which a transaction was decided
        self.now_ms = 0

    def fresh(self) -> int:
        self.next_id += 1
        return self.next_id - 1

    def with_id(self, ask: Any) -> Decision:
        decision: Decision = ask(None)
        return ask(self.fresh()) if decision is NEEDS_ID else decision

    def follow(self, decision: Decision) -> None:
        new = decision.new
        if new is None:
            return
        if new.state in (State.PREPARE_COMMIT, State.PREPARE_ABORT):
            self.ended.append((new.producer_id, new.epoch))
        self.known = new

    def tell(self, producer: Producer, producer_id: int, epoch: int) -> None:
        producer.producer_id, producer.epoch, producer.is_open = producer_id, epoch, False
        assert self.told.setdefault((producer_id, epoch), producer) is producer, "an epoch was given to two producers"

    def start(self) -> None:
        decision = self.with_id(
            lambda fresh: init_producer_id(
                self.known, None, 1_000, busy=False, level=self.level, fresh_id=fresh, now_ms=self.now_ms
            )
        )
        self.follow(decision)
        if decision.answer:
            assert decision.answer == E.CONCURRENT_TRANSACTIONS
            if self.owner is not None and decision.new is not None:
                self.retire()
            return
        if self.owner is not None:
            self.retire()
        self.owner = Producer(0, 0, self.level >= 1 and self.chance.random() < 0.6)
        self.tell(self.owner, self.known.producer_id, self.known.epoch)

    def retire(self) -> None:
        assert self.owner is not None
        self.zombies.append(self.owner)
        self.owner = None

    def add(self, producer: Producer) -> Decision:
        version = 2 if producer.raises else 0
        decision = add_partitions(
            self.known, producer.given, [("t", self.chance.randrange(3))], busy=False, version=version,
            level=self.level, now_ms=self.now_ms,
        )  # fmt: skip
        self.follow(decision)
        return decision

    def end(self, producer: Producer, commit: bool) -> Decision:
        if not producer.raises:
            decision = end(self.known, producer.given, commit=commit, busy=False, now_ms=self.now_ms)
        else:
            decision = self.with_id(
                lambda fresh: end_raising(
                    self.known, producer.given, commit=commit, busy=False, level=self.level, fresh_id=fresh,
                    now_ms=self.now_ms,
                )
            )  # fmt: skip
        self.follow(decision)
        return decision

    def step(self) -> None:
        self.now_ms += self.chance.randrange(400)
        chance = self.chance.random()
        if self.known.state in (State.PREPARE_COMMIT, State.PREPARE_ABORT) and chance < 0.5:
            self.known = completed(self.known, self.now_ms)
        elif chance < 0.08:
            self.start()
        elif chance < 0.13 and self.known.has_timed_out(self.now_ms, 0):
            self.follow(self.with_id(lambda fresh: abort_timed_out(
                self.known, level=self.level, fresh_id=fresh, now_ms=self.now_ms)))  # fmt: skip
            if self.owner is not None:
                self.retire()
        elif chance < 0.2 and self.zombies:
            self.zombie()
        elif self.owner is not None:
            self.work(self.owner)
        if self.chance.random() < 0.05:  # epochs that would take too long to use up
            self.hurry()

    def zombie(self) -> None:
        """One that was fenced does no harm, whatever it tries."""
        before = self.known
        producer = self.chance.choice(self.zombies)
        decision = self.add(producer) if self.chance.random() < 0.5 else self.end(producer, self.chance.random() < 0.5)
        assert self.known is before
        answers = {E.PRODUCER_FENCED, E.INVALID_PRODUCER_ID_MAPPING, E.CONCURRENT_TRANSACTIONS}
        if decision.answer not in answers:  # its own last end, which it may ask for again
            assert decision.answer in (E.NONE, E.INVALID_TXN_STATE)
            assert producer.raises and (producer.producer_id, producer.epoch + 1) in self.ended

    def work(self, producer: Producer) -> None:
        if self.chance.random() < 0.6:
            decision = self.add(producer)
            assert decision.answer in (E.NONE, E.CONCURRENT_TRANSACTIONS)
            producer.is_open |= not decision.answer
            return
        commit, was = self.chance.random() < 0.7, self.known
        decision = self.end(producer, commit)
        if decision.answer == E.CONCURRENT_TRANSACTIONS:
            assert was.state in (State.PREPARE_COMMIT, State.PREPARE_ABORT)
        elif decision.answer == E.NONE:
            assert self.known.state.value.endswith("Commit" if commit else "Abort")
            if producer.raises:
                if self.chance.random() < 0.3:  # the answer is lost, and the markers are written meanwhile
                    self.known = completed(self.known, self.now_ms)
                    assert self.end(producer, commit) == Decision(E.NONE)
                self.tell(producer, *self.known.after)
            producer.is_open = False
        else:
            assert decision.answer == E.INVALID_TXN_STATE and not producer.is_open

    def hurry(self) -> None:
        if self.owner is None or self.known.state in (State.PREPARE_COMMIT, State.PREPARE_ABORT):
            return
        if self.known.epoch < LAST_EPOCH - 3:
            epoch = LAST_EPOCH - self.chance.randrange(3)
            self.known = replace(self.known, epoch=epoch)
            is_open = self.owner.is_open
            self.tell(self.owner, self.known.producer_id, epoch)
            self.owner.is_open = is_open


@pytest.mark.parametrize("level", [0, 1, 2])
def test_in_any_order_of_events_one_producer_works_and_no_epoch_is_given_twice(level: int) -> None:
    seen: set[State] = set()
    for seed in range(60):
        model = Model(Random(seed * 10 + level), level)
        for _ in range(150):
            before = model.known
            model.step()
            seen.add(model.known.state)
            if model.known.producer_id == before.producer_id:
                assert model.known.epoch >= before.epoch, "epochs never go back"
            assert model.known.epoch <= LAST_EPOCH + 1
    assert seen == set(LIVE), "the histories reach every state"
