"""The I/O of the metadata quorum: carries out what `raft/` decides, and talks to the other members."""
