"""Why a batch is not appended as it came: what `_batch_check.py` finds, and the rules by which it looks.

In the compiled modules that import them the annotated ones are C constants.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import cython

# Rules, as bits. Which hold for an origin is the table in append.py; all else holds for every origin.
ASSIGNS_OFFSETS: cython.int = 1  # and leader epochs; else every byte is kept
CHECKS_PRODUCERS: cython.int = 2  # transactions, epochs, and of clients sequences; else producer state only follows
CLIENT_RULES: cython.int = 4  # dense offsets, no control batches, sane timestamps
LIMITS_SIZE: cython.int = 8  # max.message.bytes and segment.bytes
OF_CLIENTS: cython.int = ASSIGNS_OFFSETS | CHECKS_PRODUCERS | CLIENT_RULES | LIMITS_SIZE

PLAIN: cython.int = 0  # nothing speaks against it

# Refusals. One comes alone: the first that is found, in the order of Kafka's LogValidator.
OLD_FORMAT: cython.int = 1
UNKNOWN_FORMAT: cython.int = 2
SHORT_LENGTH: cython.int = 3  # less than a header
NOT_FROM_ZERO: cython.int = 4  # a client's base offset
TOO_LARGE: cython.int = 5  # for max.message.bytes
WRONG_CRC: cython.int = 6
NEGATIVE_COUNT: cython.int = 7  # of records, or the last offset delta
WRONG_COUNT: cython.int = 8  # of records for its offsets
CONTROL_RECORDS: cython.int = 9
NO_SEQUENCE: cython.int = 10  # but a producer id
STAMPED: cython.int = 11  # with LogAppendTime, which is the broker's
UNKNOWN_CODEC: cython.int = 12
TOO_LATE: cython.int = 13  # for message.timestamp.after.max.ms
TOO_EARLY: cython.int = 14  # for message.timestamp.before.max.ms
REFUSAL: cython.int = 15  # all bits of the refusals

# What takes a second look, as bits. Several come together.
CUT: cython.int = 16  # by the end of the buffer; comes alone
PRODUCER: cython.int = 32  # the batch is not known to be its producer's next in its state, or others follow
TOO_MUCH: cython.int = 64  # for segment.bytes
TOO_FAR: cython.int = 128  # past the last offset there is
FOLLOWED: cython.int = 256  # by other bytes in the buffer
