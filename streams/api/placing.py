"""By which partitioners an app itself brings records to its tables: to topics that it writes, and reads behind that.

Rows stay where their records came. With another partitioner, records of a key would come to another task.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from ..engine.graph import Graph, Kind
from ..engine.partitioning import KeyRule, told
from ..engine.topology import Topology
from .agents import Agent
from .topics import Topic
from .usage import used

SENDING = frozenset(
    ("ask", "ask_nowait", "cast", "kvjoin", "kvmap", "send", "send_encoded", "send_rows", "send_soon")
)  # methods of topics and agents


def partitioners(
    agents: Sequence[Agent], graph: Graph, topology: Topology, declared: Mapping[str, Topic], default: KeyRule
) -> dict[str, str]:
    """As text, of each table with records from topics that pipelines and agents of the app write. A topic that only
    others write has none: its declaration says where they have their keys, and may be mended. agents: of an app;
    declared: its topics, of pipelines; default: the partitioner of those that have none."""
    read = [each.reads for each in agents if each.topic is not None]
    topics = {**declared, **{name: topic for topic in read for name in topic.names}}
    between: set[str] = set()  # topics that are written where others have their keys
    rules: dict[str, set[KeyRule]] = {}
    for name, by, is_between in _written(agents, graph):
        topic = topics.get(name)
        rule = by or (topic.partitioner if topic is not None else None)
        if rule is None and is_between:
            between.add(name)
        rules.setdefault(name, set()).add(rule or default)
    found: dict[str, str] = {}
    for part in topology.subtopologies.values():
        others = [name for name in part.topics if name not in between and not _is_internal(topics.get(name))]
        given = topics.get(others[0]) if others else None
        theirs = (given.partitioner if given is not None else None) or default
        said = {told(theirs if name in between else each) for name in part.topics for each in rules.get(name, ())}
        if said:
            found.update(dict.fromkeys(part.tables, ", ".join(sorted(said))))
    return found


def _is_internal(topic: Topic | None) -> bool:
    return topic is not None and topic.is_internal


def _written(agents: Sequence[Agent], graph: Graph) -> Iterator[tuple[str, KeyRule | None, bool]]:
    """Topics that the app writes: the partitioner, None: the topic's; and whether it is one between two steps, which
    has its keys where the topics of others have them that it is read together with. Agents send where their code names
    a topic and sends; what it only names, as for a log line, is not written."""
    for agent in agents:
        own = () if agent.topic is None or not agent.topic.is_internal else (agent.topic,)
        targets = [step.target for step in agent.steps]
        sent_to = [*agent.sinks, *used(agent.function, (Topic, Agent), beside=SENDING)]
        theirs = [each.topic if isinstance(each, Agent) else each for each in sent_to]
        for topic in (*own, *targets, *(each for each in theirs if isinstance(each, Topic))):
            yield from ((name, topic.partitioner, False) for name in topic.names)
    for node in graph.nodes.values():
        if node.kind is Kind.SINK or (node.kind is Kind.REPARTITION and node.place is None):
            yield from ((name, node.partitioner, node.kind is Kind.REPARTITION) for name in node.topics)
