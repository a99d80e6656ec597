"""Isthmus' stream apps beside those of others, on one broker: see `__main__.py`.

events.py        what is read, and what has to come out
apps/            the same workloads, as a program of each side
environments.py  where the programs of others have their packages
sides.py         how a side is started, and where its results are
measuring.py     a run of a side: CPU-seconds, seconds, memory, and whether the result is right
own.py           what is measured of Isthmus alone: exactly_once, restoring, latency, memory of rows
"""
