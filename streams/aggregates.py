"""Aggregates of windows, keys and groups: `from isthmus.streams.aggregates import Count, Sum`."""

from .api.aggregates import (
    Aggregate,
    Collect,
    Count,
    CountDistinct,
    Distinct,
    First,
    Last,
    Max,
    Mean,
    Min,
    Reduce,
    Sum,
    TopN,
)

__all__ = [
    "Aggregate",
    "Collect",
    "Count",
    "CountDistinct",
    "Distinct",
    "First",
    "Last",
    "Max",
    "Mean",
    "Min",
    "Reduce",
    "Sum",
    "TopN",
]
