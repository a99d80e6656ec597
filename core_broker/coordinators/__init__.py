"""Coordinators: state that is the replay of records in an internal topic's partitions."""
