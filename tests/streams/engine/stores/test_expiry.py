"""Keys whose time is over are found in its order, and no others."""

from hypothesis import given
from hypothesis import strategies as st

from isthmus.streams.engine.stores.expiry import TimeIndex


@given(
    st.lists(st.tuples(st.integers(0, 5), st.integers(-30, 30), st.booleans())), st.integers(1, 7), st.integers(1, 4)
)
def test_an_index_gives_the_keys_whose_step_is_over_by_time(
    steps: list[tuple[int, int, bool]], step_ms: int, limit: int
) -> None:
    index = TimeIndex(step_ms)
    model: dict[int, int] = {}
    for key, time_ms, adds in steps:
        if key in model:
            index.discard(key, model.pop(key))
        if adds:
            index.add(key, time_ms)
            model[key] = time_ms
        before_ms = time_ms - 10
        got: list[int] = []
        while some := index.expire(before_ms, limit):
            assert len(some) <= limit
            got += some
        over = [key for key, at in model.items() if (at // step_ms + 1) * step_ms <= before_ms]
        assert sorted(got) == sorted(over)
        assert [model[key] // step_ms for key in got] == sorted(model[key] // step_ms for key in got)
        for key in got:
            del model[key]
        assert len(index) == len(model)


def test_with_steps_of_a_millisecond_all_before_a_time_expire() -> None:
    index = TimeIndex()
    for start_ms in (20, 0, 10):
        index.add(("key", start_ms), start_ms)
    assert index.expire(20) == [("key", 0), ("key", 10)]
    assert index.expire(20) == []
    assert index.expire(21) == [("key", 20)]
