"""Savepoints: an app's state in a folder, from which the app goes on elsewhere, or with other numbers of partitions.

* `format.py`: the folder; `taking.py`: from a cluster to a folder; `tail.py`: which checkpoint that is;
* `restoring.py`: from a folder to a cluster, all or nothing (`fence.py`);
* `plan.py`: what is written where; `positions.py`: where inputs are read on; `rescaling.py`: the plan of other numbers
  of partitions.
"""
