"""What a group's description says to a person."""

import pytest

from isthmus.client.groups import GroupDescription, GroupMember
from isthmus.console import groups


def printed(said: GroupDescription, capsys: pytest.CaptureFixture[str]) -> list[str]:
    more = {"options": {"consumer.heartbeat.interval.ms": "7000"}, "notes": [], "offsets": []}
    groups.show({**groups.facts_of(said), **more})
    lines: list[str] = capsys.readouterr().out.splitlines()
    return lines


def test_a_classic_group(capsys):
    member = GroupMember("m", None, "c", "/h", {"a": (1,), "b": (0, 2)})
    lines = printed(GroupDescription("g", "classic", "Stable", "range", (member,)), capsys)
    assert lines[:2] == ["g  Stable  classic  protocol range", "  consumer.heartbeat.interval.ms = 7000"]
    assert lines[2].split() == ["member", "client", "host", "assigned"]
    assert lines[3].split() == ["m", "c", "/h", "a:1", "b:0,2"]


def test_a_consumer_group_says_what_members_wait_for(capsys):
    held, wanted = {"a": (1,)}, {"a": (1, 2)}
    new = GroupMember("m", None, "c", "/h", held, False, None, 3, ("a",), "b.*", wanted)
    done = GroupMember("n", None, "c", "/h", held, True, "r", 4, ("a",), None, held)
    lines = printed(GroupDescription("g", "consumer", "Assigning", "range", (new, done), 4, 3), capsys)
    assert lines[0] == "g  Assigning  consumer  assignor range  epoch 4, assigned up to 3"
    assert lines[2].split() == ["member", "protocol", "rack", "epoch", "reads", "client", "host", "assigned", "target"]
    assert lines[3].split() == ["m", "3", "a", "/b.*/", "c", "/h", "a:1", "a:1,2"]
    assert lines[4].split() == ["n", "classic", "r", "4", "a", "c", "/h", "a:1"]
