"""Isthmus: a multi-datacenter streaming stack that speaks the Kafka protocol."""

__version__ = "0.1.0"
