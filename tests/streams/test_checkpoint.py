"""What a changelog says when it is read back: zombies, torn checkpoints, and what compaction does to it."""

import orjson
import pytest

from isthmus.streams.engine.checkpoint import Restored, Restorer, Row, begin_marker, end_marker, marker_key, row_header
from isthmus.streams.errors import ChangelogError

OLD, NEW = b"o" * 8, b"n" * 8
Record = tuple[bytes, bytes | None, bytes | None]


def begin(run: bytes) -> list[Record]:
    return [(marker_key(run, True), begin_marker("app", run), None)]


def rows(run: bytes, number: int, **values: str | None) -> list[Record]:
    header = row_header(run, number)
    return [(b"t\0" + k.encode(), None if v is None else v.encode(), header) for k, v in values.items()]


def marker(run: bytes, number: int, **values: str | None) -> list[Record]:
    of = [Row(key, value) for key, value, _ in rows(run, number, **values)]
    return [(marker_key(run, False), end_marker("app", run, number, of, {"in": {0: number * 10}}, {"in": "id"}), None)]


def checkpoint(run: bytes, number: int, **values: str | None) -> list[Record]:
    return rows(run, number, **values) + marker(run, number, **values)


def read(*parts: list[Record]) -> Restored:
    restorer = Restorer("app", "app-changelog-0")
    for part in parts:
        for record in part:
            restorer.feed(*record)
    return restorer.end()


def compacted(*parts: list[Record]) -> list[Record]:
    """The newest record of each key, as Kafka's cleaner leaves it."""
    log = [record for part in parts for record in part]
    newest = {key: at for at, (key, _, _) in enumerate(log)}
    return [record for at, record in enumerate(log) if newest[record[0]] == at]


def table(restored: Restored) -> dict[str, str]:
    return {key[2:].decode(): value.decode() for key, value in restored.rows.items()}


def test_rows_count_once_their_marker_stands():
    said = read(begin(OLD), checkpoint(OLD, 1, a="1", b="1"), checkpoint(OLD, 2, a="2", b=None), rows(OLD, 3, a="9"))
    assert table(said) == {"a": "2"}
    assert (said.number, said.positions, list(said.repair)) == (2, {"in": {0: 20}}, [b"t\0a"])
    assert said.topic_ids == {"in": "id"}


def test_a_marker_of_a_release_that_wrote_no_topic_ids_is_read():
    (key, value, _), *_ = marker(OLD, 1)
    said = orjson.loads(value or b"")
    del said["topic_ids"]
    restored = read(begin(OLD), [(key, orjson.dumps(said), None)])
    assert (restored.positions, restored.topic_ids) == ({"in": {0: 10}}, {})


def test_a_checkpoint_that_an_old_run_closes_after_a_new_one_began_does_not_count():
    log = [begin(OLD), checkpoint(OLD, 1, a="1"), rows(OLD, 2, a="zombie"), begin(NEW), marker(OLD, 2, a="zombie")]
    said = read(*log, checkpoint(NEW, 2, b="2"), checkpoint(OLD, 3, c="zombie"))
    assert table(said) == {"a": "1", "b": "2"}
    assert list(said.repair) == [b"t\0a", b"t\0c"]


def test_a_zombies_row_behind_a_good_one_is_repaired_though_the_good_one_was_closed_later():
    good = checkpoint(NEW, 1, a="1")
    log = [begin(OLD), begin(NEW), good[:1], rows(OLD, 5, a="zombie"), good[1:]]
    said = read(*log)
    assert table(said) == {"a": "1"}
    assert list(said.repair) == [b"t\0a"]
    before = read(begin(OLD), begin(NEW), rows(OLD, 5, a="zombie"), good)
    assert (table(before), list(before.repair)) == ({"a": "1"}, [])


def test_a_compacted_log_gives_the_same_table():
    log = [begin(OLD)]
    want: dict[str, str] = {}
    for number in range(1, 30):
        values: dict[str, str | None] = {f"k{number % 7}": str(number), f"k{number % 3}": f"x{number}"}
        if number % 5 == 0:
            values["k1"] = None
        log.append(checkpoint(OLD, number, **values))
        want.update({key: value for key, value in values.items() if value is not None})
        for key in [key for key, value in values.items() if value is None]:
            want.pop(key, None)
    assert table(read(*log)) == want
    assert table(read(compacted(*log))) == want


def test_a_later_run_whose_rows_replace_some_of_the_last_checkpoint_is_no_damage():
    """Compaction leaves one row of checkpoint 1 and none of checkpoint 2: as many as checkpoint 2 counts."""
    log = compacted(
        begin(OLD), checkpoint(OLD, 1, a="1"), checkpoint(OLD, 2, b="2"), begin(NEW), checkpoint(NEW, 3, b="3")
    )
    assert table(read(log)) == {"a": "1", "b": "3"}


def test_a_changed_or_a_doubled_row_is_damage():
    good = checkpoint(OLD, 1, a="1", b="2")
    changed = [(good[0][0], b"9", good[0][2]), *good[1:]]
    for broken in (changed, [good[0], *good]):
        with pytest.raises(ChangelogError, match="checkpoint 1 closes 2 rows"):
            read(begin(OLD), broken)
