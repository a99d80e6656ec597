"""Operators: the steps between the topics that an app reads and its agents, tables and outputs.

Pure and synchronous: lists of events in, lists of events out. `operator.py` says what an operator is; `graph.py` in the
folder above joins them. Their state is in tables, so it is changelogged, restored and committed as any other.
"""
