"""Bugs of transactions in the client: of the producer, and of readers of committed records."""

from __future__ import annotations

from tests.mutants import Mutant

TRANSACTIONAL, SENDER, ACCUMULATOR = "client/transactional.py", "client/sender.py", "client/accumulator.py"
ISOLATION = "protocol/isolation.py"
SCRIPTED = "tests/client/test_producer_transactions.py"
FAULTS = ("tests/client/test_transaction_faults.py",)
MODEL = ("tests/protocol/test_isolation.py",)

MUTANTS: tuple[Mutant, ...] = (
    Mutant(
        "a commit does not wait for its records",
        TRANSACTIONAL,
        "                await self._records.flush()\n",
        "",
        FAULTS,
    ),
    Mutant(
        "an abort does not wait for requests under way",
        TRANSACTIONAL,
        "            await self._records.until_idle()\n",
        "",
        FAULTS,
    ),
    Mutant(
        "an abort keeps what was not sent",
        TRANSACTIONAL,
        "            self._records.drop(ClientError(",
        "            print(ClientError(",
        FAULTS,
    ),
    Mutant(
        "a commit without an answer counts as aborted",
        TRANSACTIONAL,
        "                raise self._unknown(error) from error\n            if isinstance",
        "                raise self.failed(Step.WRITE, error) from error\n            if isinstance",
        FAULTS,
    ),
    Mutant(
        "a commit that was refused counts as aborted without a question",
        TRANSACTIONAL,
        "                raise await self._why_refused(error) from error\n",
        "                pass\n",
        FAULTS,
    ),
    Mutant(
        "an epoch in doubt is used again",
        TRANSACTIONAL,
        "            self._must_renew |= self._records.is_in_doubt()\n",
        "",
        (f"{SCRIPTED}::test_a_batch_whose_fate_is_unknown_when_it_is_aborted_costs_the_epoch",),
    ),
    Mutant(
        "a leader's word about the epoch is not looked into",
        TRANSACTIONAL,
        "        self._must_renew |= told is Verdict.RENEW\n",
        "",
        (f"{SCRIPTED}::test_a_leader_that_expects_another_sequence_or_epoch_costs_the_epoch",),
    ),
    Mutant(
        "offsets that were cancelled may be committed later",
        TRANSACTIONAL,
        '            self.failed(Step.COMMIT_OFFSETS, ClientError("it was cancelled"))\n',
        "",
        (f"{SCRIPTED}::test_offsets_that_are_cancelled_end_the_transaction",),
    ),
    Mutant(
        "an outcome that nobody was told is forgotten",
        TRANSACTIONAL,
        "        if self._ending is not None and self._ends_by is Step.COMMIT:\n",
        "        if False:\n",
        (f"{SCRIPTED}::test_a_commit_that_is_cancelled_goes_on_and_tells_the_next_call",),
    ),
    Mutant(
        "partitions of the last transaction count as added",
        TRANSACTIONAL,
        "        self._added.clear()\n",
        "",
        (f"{SCRIPTED}::test_all_partitions_of_a_moment_are_added_by_one_request_and_the_epoch_stays",),
    ),
    Mutant(
        "a batch that is given up leaves its transaction whole",
        SENDER,
        "        batch.fail(error if self._gate is None else self._gate.refused(error))\n"
        "        self._release(each, batch)\n        if each",
        "        batch.fail(error)\n        self._release(each, batch)\n        if each",
        FAULTS,
    ),
    Mutant(
        "batches behind a split one keep their numbers",
        ACCUMULATOR,
        "            self._rewind(batch)\n",
        "            pass\n",
        (f"{SCRIPTED}::test_a_batch_that_is_too_large_is_split_within_its_transaction",),
    ),
    Mutant(
        "an epoch begins with another sequence than 0",
        ACCUMULATOR,
        "        self.producer_id, self.epoch = producer_id, epoch\n        self.next_sequence = 0\n",
        "        self.producer_id, self.epoch = producer_id, epoch\n",
        (f"{SCRIPTED}::test_each_transaction_has_an_epoch_of_its_own_and_adds_nothing",),
    ),
    Mutant(
        "what was aborted counts from its second batch on",
        ISOLATION,
        "        elif header.is_transactional and header.producer_id in open_ids:\n",
        "        elif header.is_transactional and open_ids.pop(header.producer_id, 0) is None:\n",
        MODEL,
    ),
    Mutant(
        "a producer that has aborted is never read again",
        ISOLATION,
        "            open_ids.pop(header.producer_id, None)\n",
        "            pass\n",
        MODEL,
    ),
    Mutant(
        "aborted transactions are taken in the order of the answer",
        ISOLATION,
        "    pending = sorted(aborted, key=lambda each: each[1], reverse=True)\n",
        "    pending = list(aborted)\n",
        MODEL,
    ),
)
