"""Mirrors topics from one cluster into another: the same batches at the same offsets.

Where to look:

* each batch lands once, without a lease or a clock: `carrier.py`, and in the broker `server/apis/mirror_append.py`;
* the source's topic was deleted and created again: `carrier.py` (`_look_at`) finds it by the topic's id in the source,
  `discovery.py` (`_problem`) by the id that the target's topic keeps, and `worker.py` (`_adopt`) begins anew once the
  target's topic is gone;
* the source's log was replaced under the same id: `verify.py` compares batches, `carrier.py` (`_compare`) acts on it;
* what a link carries, its bounds, and the topic options that it copies: `link.py`;
* topics of the target are made, grown and owned: `discovery.py`;
* states and offsets of a partition: `partition.py`; how they get into `__mirror_status`: `status.py`, `worker.py`.
"""
