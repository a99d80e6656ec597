"""The broker's process with one fault planted: a leader commits what it alone has, as if acks were 1.

The control of the histories: it acknowledges before replication, and loses what it acknowledged.
"""

from __future__ import annotations

import sys

from isthmus.core_broker.__main__ import main
from isthmus.core_broker.replication.leadership import Leadership


def committed_end(self: Leadership, kept_end: int, leader_end: int) -> int:
    return kept_end


if __name__ == "__main__":
    Leadership.committed_end = committed_end  # type: ignore[method-assign]
    sys.exit(main())
