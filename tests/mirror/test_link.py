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


def test_blanks_around_expressions_are_dropped_and_those_inside_stay():
    assert patterns(" orders ,\tpayments\\..*\n") == ["orders", "payments\\..*"]
    assert patterns("x{1, 3} , a b") == ["x{1, 3}", "a b"]
    link = MirrorLink("l", "ewr", [" flights, w.* ", "x"])
    assert link.topics == ["flights", "w.*", "x"] and link.selects("weather") and link.selects("flights")


def test_expressions_that_select_none_of_the_topics_are_named():
    link = MirrorLink("l", "ewr", ["flights", "w.*", "__.*"])
    assert link.unused(["weather", "__internal"]) == ["flights", "__.*"]
    assert link.unused([]) == ["flights", "w.*", "__.*"]


@pytest.mark.parametrize(
    ("topics", "rename", "said"),
    [
        (["("], "{topic}", "link l: topics: '\\('.* is not a regular expression"),
        ([""], "{topic}", "an empty one matches no topic"),
        (["a, ,b"], "{topic}", "an empty one matches no topic"),
        (["a"], "{dc}.{topic}", "link l: rename: '{dc}.{topic}' may contain only"),
        (["a"], "{}.{topic}", "may contain only"),
        (["a"], "{topic", "may contain only"),
        (["a"], "{topic.upper}", "written exactly so"),  # an attribute that every text has
        (["a"], "{topic.no_such}", "written exactly so"),
        (["a"], "{topic[0]}", "written exactly so"),  # ab and ac would become one
        (["a"], "{topic:.3}", "written exactly so"),
        (["a"], "{topic!r}", "written exactly so"),
        (["a"], "{source}/{topic}", "gives no topic a valid name: Topic name is invalid"),
        (["a"], "{source} {{{topic}}}", "gives no topic a valid name: Topic name is invalid"),
    ],
)
def test_a_link_that_cannot_work_is_refused(topics, rename, said):
    with pytest.raises(MirrorError, match=said):
        MirrorLink("l", "ewr", topics, rename)


@pytest.mark.parametrize("rename", ["{source}", "{source}.{{topic}}"])
def test_a_rename_that_gives_all_topics_one_name_is_refused(rename):
    with pytest.raises(MirrorError, match=r"it must contain \{topic\}"):
        MirrorLink("l", "ewr", ["a.*"], rename)
