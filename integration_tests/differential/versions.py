"""The version ranges that stock Kafka 4.4.0 answers, for the keys that we serve."""

from __future__ import annotations

STOCK: dict[int, tuple[int, int]] = {
    0: (0, 13),
    1: (4, 18),
    2: (1, 11),
    3: (0, 13),
    8: (2, 10),
    9: (1, 10),
    10: (0, 6),
    11: (0, 9),
    12: (0, 4),
    13: (0, 5),
    14: (0, 5),
    15: (0, 6),
    16: (0, 5),
    18: (0, 5),
    19: (2, 7),
    20: (1, 6),
    22: (0, 5),
    32: (1, 4),
    37: (0, 3),
    42: (0, 3),
    44: (0, 1),
    60: (0, 2),
}
OUR_OWN = {30_000: (0, 0)}
