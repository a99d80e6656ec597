"""The server-side assignors of consumer groups, by the names that clients ask for (`group.remote.assignor`)."""

from __future__ import annotations

from collections.abc import Mapping

from . import range as ranges
from . import uniform
from .types import Assignment, Assignor, MemberSubscription, TopicDescriber, is_homogeneous

__all__ = ["ASSIGNORS", "Assignment", "Assignor", "MemberSubscription", "TopicDescriber", "is_homogeneous"]

ASSIGNORS: Mapping[str, Assignor] = {"uniform": uniform.assign, "range": ranges.assign}  # the first is the default
