"""Which topics belong together, and what tasks that makes."""

from hypothesis import given
from hypothesis import strategies as st

from isthmus.streams.engine.task import TaskId
from isthmus.streams.engine.topology import Reader, Topology


def parts(*readers: Reader) -> dict[str, tuple[tuple[str, ...], tuple[str, ...]]]:
    """Of each sub-topology: its tables and readers."""
    return {name: (each.tables, each.readers) for name, each in Topology("app", readers).subtopologies.items()}


def test_topics_that_share_no_state_are_sub_topologies_of_their_own():
    both = Reader("both", ("a", "b"))
    assert parts(both, Reader("also", ("a",))) == {"a": ((), ("both", "also")), "b": ((), ("both",))}


def test_a_table_ties_the_topics_of_all_that_use_it():
    ones = Reader("ones", ("b",), ("t",)), Reader("others", ("a", "c"), ("t", "u")), Reader("alone", ("d",))
    assert parts(*ones) == {"a+b+c": (("t", "u"), ("ones", "others")), "d": ((), ("alone",))}


def test_a_chain_of_tables_ties_too():
    chain = [Reader(str(n), (f"in{n}",), (f"t{n}", f"t{n + 1}")) for n in range(4)]
    assert list(parts(*chain)) == ["in0+in1+in2+in3"]


def test_a_join_ties_its_topics_without_a_table():
    readers = Reader("join", ("a", "b"), is_joining=True), Reader("r", ("c", "a"))
    assert list(parts(*readers)) == ["a+b", "c"]
    topology = Topology("app", readers)
    assert [topology.is_tied(each) for each in topology.subtopologies.values()] == [True, False]


def test_tasks_are_the_partitions_of_each_sub_topology():
    topology = Topology("app", [Reader("count", ("in",), ("t",)), Reader("pass", ("out",))])
    assert (topology.topics, topology.task_of("out", 2)) == (["in", "out"], TaskId("out", 2))
    assert topology.of_table("t") is topology.of_topic("in") and topology.of_table("u") is None
    assert [topology.is_tied(each) for each in topology.subtopologies.values()] == [True, False]


READERS = st.lists(
    st.builds(
        Reader,
        st.just("r"),
        st.lists(st.sampled_from("abcdef"), min_size=1, max_size=3, unique=True).map(tuple),
        st.lists(st.sampled_from("tuvw"), max_size=2, unique=True).map(tuple),
    ),
    min_size=1,
    max_size=8,
)


@given(READERS)
def test_tied_is_what_readers_of_tables_tie_and_no_more(readers):
    merged = [{*reader.topics, *reader.tables} for reader in readers if reader.tables]
    merged += [{topic} for reader in readers for topic in reader.topics]
    for node in "abcdeftuvw":
        with_it = [each for each in merged if node in each]
        merged = [each for each in merged if node not in each] + ([set().union(*with_it)] if with_it else [])
    found = Topology("app", readers).subtopologies.values()
    assert sorted(sorted((*each.topics, *each.tables)) for each in found) == sorted(map(sorted, merged))
