"""Where records are from: by what their topic copies, or by the header that they carry."""

import pytest

from isthmus.streams.engine.event import Event
from isthmus.streams.engine.origin import HEADER, Copy, Origin, Origins, carrying, current_origins
from isthmus.streams.errors import AppError, RecordError

FRA = Origin("fra", "orders", 3, 41)


def event(topic: str, offset: int = 41, headers: tuple[tuple[str, bytes | None], ...] = ()) -> Event:
    return Event(b"k", None, 0, topic, 3, offset, headers)


def test_a_copy_has_the_offsets_of_its_source() -> None:
    origins = Origins("hub", {"fra.orders": Copy("fra", "orders"), "mm.orders": Copy("mm", "orders", False)})
    assert origins.of(event("fra.orders")) == FRA
    assert origins.of(event("mm.orders")) == Origin("mm", "orders", 3, None)
    assert origins.of(event("own")) == Origin("hub", "own", 3, 41)
    assert origins.of(event("window", -1)) is None


def test_a_header_carries_the_origin_and_stays_what_it_is() -> None:
    origins = Origins("hub", {"fra.orders": Copy("fra", "orders")})
    token = current_origins.set(origins)
    try:
        sent = carrying(event("fra.orders", headers=(("a", b"1"),)))
        assert sent == (("a", b"1"), (HEADER, FRA.encode()))
        assert len(FRA.encode()) == 14 + len("fra" + "orders")
        assert event("repartition", 7, sent).origin == FRA
        assert carrying(event("repartition", 7, sent)) == sent
        assert carrying(event("window", -1)) == ()
    finally:
        current_origins.reset(token)


@pytest.mark.parametrize("data", [b"", FRA.encode()[:-7], b"\2" + FRA.encode()[1:], FRA.encode()[:13]])
def test_a_header_that_is_none_of_ours_is_an_error_of_the_record(data: bytes) -> None:
    with pytest.raises(RecordError, match=f"in-3 offset 41: header {HEADER}"):
        Origins().of(event("in", headers=((HEADER, data),)))


def test_an_app_that_does_not_ask_has_no_origins() -> None:
    with pytest.raises(AppError, match="origins=True"):
        event("in").origin  # noqa: B018
