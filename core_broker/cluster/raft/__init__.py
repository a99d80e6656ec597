"""Raft as KRaft's, without I/O: what a member of the metadata quorum decides. `raft.py` is the step function."""
