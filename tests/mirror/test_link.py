"""What a link selects and how it names it."""

import pytest

from isthmus.mirror.errors import MirrorError
from isthmus.mirror.link import MirrorLink, patterns


def test_topics_match_whole_names_and_internal_ones_never():
    link = MirrorLink("l", "ewr", ["flights", "w.*"])
    assert [name for name in ("flights", "flights2", "weather", "__w", "x") if link.selects(name)] == [
        "flights",
        "weather",
    ]
    assert link.target_name("flights") == "ewr.flights"


def test_commas_part_expressions_and_not_the_bounds_of_a_repetition():
    assert patterns("flights,w.*") == ["flights", "w.*"]
    assert patterns("x{1,3},(a{2}|b{,4}),y") == ["x{1,3}", "(a{2}|b{,4})", "y"]


@pytest.mark.parametrize(
    ("topics", "rename", "said"),
    [(["("], "{topic}", "'\\('.* is no regular expression"), (["a"], "{dc}.{topic}", "may hold only")],
)
def test_a_link_that_cannot_work_is_refused(topics, rename, said):
    with pytest.raises(MirrorError, match=said):
        MirrorLink("l", "ewr", topics, rename)


def test_a_rename_that_gives_all_topics_one_name_is_refused():
    with pytest.raises(MirrorError, match=r"it must hold \{topic\}"):
        MirrorLink("l", "ewr", ["a.*"], "{source}")
