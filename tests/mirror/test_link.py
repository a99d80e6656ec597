"""What a link selects and how it names it."""

import pytest

from isthmus.mirror.errors import MirrorError
from isthmus.mirror.link import MirrorLink


def test_topics_match_whole_names_and_internal_ones_never():
    link = MirrorLink("l", "ewr", ["flights", "w.*"])
    assert [name for name in ("flights", "flights2", "weather", "__w", "x") if link.selects(name)] == [
        "flights",
        "weather",
    ]
    assert link.target_name("flights") == "ewr.flights"


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
