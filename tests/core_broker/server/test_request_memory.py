"""Past the bound on the memory of half-read requests, readers pause until there is room."""

from __future__ import annotations

from isthmus.core_broker.server.request_memory import RequestMemory


class Connection:
    def __init__(self) -> None:
        self.said: list[str] = []

    def pause(self) -> None:
        self.said.append("pause")

    def resume(self) -> None:
        self.said.append("resume")


def test_who_passes_the_bound_pauses_until_there_is_room() -> None:
    memory = RequestMemory(1000)
    first, second, third = Connection(), Connection(), Connection()
    memory.changed(first, 1000)
    assert (first.said, memory.held_bytes, memory.free_bytes) == ([], 1000, 0)
    memory.changed(second, 100)
    memory.changed(third, 1)
    assert (second.said, memory.free_bytes) == (["pause"], 0)
    memory.changed(first, -100)
    assert second.said == third.said == ["pause"]  # 1 byte too much
    memory.changed(third, -1)
    assert second.said == third.said == ["pause", "resume"]
    memory.changed(second, -100)
    assert (second.said, memory.free_bytes) == (["pause", "resume"], 100)
    assert first.said == []


def test_who_is_resumed_may_pass_the_bound_at_once() -> None:
    class Greedy(Connection):
        def resume(self) -> None:
            super().resume()
            if len(self.said) < 4:
                memory.changed(self, 2000)

    memory = RequestMemory(1000)
    connection = Greedy()
    memory.changed(connection, 1500)
    memory.changed(connection, -1500)
    assert connection.said == ["pause", "resume", "pause"]
    memory.changed(connection, -2000)
    assert connection.said == ["pause", "resume", "pause", "resume"]
    assert memory.held_bytes == 0
