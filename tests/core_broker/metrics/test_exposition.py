"""The text is what Prometheus' own parser reads back, name by name and value by value."""

from __future__ import annotations

import math

from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families

from isthmus.core_broker.metrics.exposition import LINES_A_PIECE, Family, Sample, Type, render

GAUGE = Family("some_gauge", Type.GAUGE, ("topic", "reason"), "What it\nmeans \\ is")


def parsed(*families: tuple[Family, list[Sample]]) -> dict[str, dict[tuple[str, ...], float]]:
    text = b"".join(render(families)).decode()
    found: dict[str, dict[tuple[str, ...], float]] = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            labels = tuple(f"{name}={value}" for name, value in sorted(sample.labels.items()))
            assert labels not in found.setdefault(sample.name, {})
            found[sample.name][labels] = sample.value
    return found


VALUES = st.integers(0, 1 << 62) | st.floats(allow_nan=False)


@given(st.lists(st.tuples(st.text(), st.text(), VALUES), unique_by=lambda row: row[:2]))
def test_any_label_and_value_comes_through(rows) -> None:
    # The format's lines end at \n; the parser ends them at what else Python takes for an end, too.
    rows = [row for row in rows if len((row[0] + row[1]).splitlines()) < 2 and "\r" not in row[0] + row[1]]
    samples = [Sample((topic, reason), value) for topic, reason, value in rows]
    found = parsed((GAUGE, samples)).get("some_gauge", {})
    assert sorted(found.values()) == sorted(value for *_, value in rows)
    assert set(found) == {(f"reason={reason}", f"topic={topic}") for topic, reason, _ in rows}


def test_escapes_and_newlines() -> None:
    found = parsed((GAUGE, [Sample(('a"b', "c\\d\ne"), 1)]))
    assert found == {"some_gauge": {("reason=c\\d\ne", 'topic=a"b'): 1}}


def test_every_kind_is_read_as_what_it_is() -> None:
    counter = Family("things_total", Type.COUNTER, (), "Things")
    summary = Family("times", Type.SUMMARY, ("request",), "Times")
    histogram = Family("seconds", Type.HISTOGRAM, ("request",), "Times")
    text = b"".join(
        render(
            [
                (counter, [Sample((), 3)]),
                (summary, [Sample(("A",), 1.5, "", ("quantile", "0.99")), Sample(("A",), 7, "_count")]),
                (histogram, [Sample(("A",), 2, "_bucket", ("le", "+Inf")), Sample(("A",), 2, "_count")]),
            ]
        )
    ).decode()
    families = {family.name: family for family in text_string_to_metric_families(text)}
    assert {name: family.type for name, family in families.items()} == {
        "things": "counter",
        "times": "summary",
        "seconds": "histogram",
    }
    (bucket,) = [each for each in families["seconds"].samples if each.name == "seconds_bucket"]
    assert math.isinf(float(bucket.labels["le"]))


def test_a_family_without_samples_is_left_out_and_many_come_in_pieces() -> None:
    many = Family("many", Type.GAUGE, ("n",), "Many")
    pieces = list(render([(GAUGE, []), (many, (Sample((str(n),), n) for n in range(3 * LINES_A_PIECE)))]))
    assert len(pieces) == 4
    assert all(piece.count(b"\n") <= LINES_A_PIECE + 1 for piece in pieces)
    assert b"some_gauge" not in b"".join(pieces)
