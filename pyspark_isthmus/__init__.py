"""By its name alone Spark finds this package, and so `format("isthmus")` without a register() call."""

from isthmus.connectors.source import IsthmusDataSource as DefaultSource

__all__ = ["DefaultSource"]
