"""Draws an app's topology: as text, as Mermaid, as SVG.

What an agent writes is found in its code, as its tables are (`api/usage.py`): a topic that it gets in another way is
not in the picture.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from html import escape
from typing import Any, NamedTuple

from .api.agents import Agent
from .api.app import App
from .api.topics import Topic
from .api.usage import used
from .engine.graph import Kind
from .engine.topology import SubTopology

TOPIC, AGENT, STEP, TABLE = "topic", "agent", "step", "table"
# Of the SVG, in pixels.
BOX_WIDTH, BOX_HEIGHT, GAP_X, GAP_Y, MARGIN = 200, 34, 70, 16, 24
LETTERS_MAX = 28  # of a name in a box
FILLS = {TOPIC: "#e8f0fe", AGENT: "#e6f4ea", STEP: "#fef7e0", TABLE: "#f3e8fd"}
SHAPES = {TOPIC: ("[/", "/]"), AGENT: ("([", "])"), STEP: ("[", "]"), TABLE: ("[(", ")]")}


class Box(NamedTuple):
    """kind: topic, agent, step or table."""

    kind: str
    name: str


@dataclass
class Drawing:
    """boxes: in order; arrows: from one to another; parts: the boxes of each sub-topology, by its name."""

    app: str
    boxes: dict[Box, None] = field(default_factory=dict)
    arrows: dict[tuple[Box, Box], None] = field(default_factory=dict)
    parts: dict[str, list[Box]] = field(default_factory=dict)

    def arrow(self, source: Box, target: Box) -> None:
        self.boxes.setdefault(source)
        self.boxes.setdefault(target)
        self.arrows.setdefault((source, target))

    def text(self) -> str:
        """Each sub-topology with what reads what."""
        lines = [f"app {self.app}"]
        for name, boxes in self.parts.items():
            lines.append(f"  sub-topology {name}")
            for box in boxes:
                targets = [target for source, target in self.arrows if source == box]
                lines += [f"    {box.kind} {box.name} -> {target.kind} {target.name}" for target in targets]
        return "\n".join(lines)

    def mermaid(self) -> str:
        """A flowchart, for Markdown pages that draw Mermaid."""
        ids = {box: f"n{number}" for number, box in enumerate(self.boxes)}
        lines = ["flowchart LR"]
        inside = {box for boxes in self.parts.values() for box in boxes}
        for number, (name, boxes) in enumerate(self.parts.items()):
            lines.append(f'  subgraph p{number}["{_mermaid_text(name)}"]')
            lines += [f"    {_mermaid_box(ids[box], box)}" for box in boxes]
            lines.append("  end")
        lines += [f"  {_mermaid_box(ids[box], box)}" for box in self.boxes if box not in inside]
        lines += [f"  {ids[source]} --> {ids[target]}" for source, target in self.arrows]
        return "\n".join(lines)

    def svg(self) -> str:
        """A picture by itself: boxes in columns, each right of those it reads."""
        columns = self._columns()
        places: dict[Box, tuple[int, int]] = {}
        rows: dict[int, int] = {}
        for box in self.boxes:
            column = columns[box]
            row = rows.get(column, 0)
            rows[column] = row + 1
            places[box] = MARGIN + column * (BOX_WIDTH + GAP_X), MARGIN + row * (BOX_HEIGHT + GAP_Y)
        width = 2 * MARGIN + (max(rows, default=0) + 1) * (BOX_WIDTH + GAP_X) - GAP_X
        height = 2 * MARGIN + max(rows.values(), default=0) * (BOX_HEIGHT + GAP_Y) - GAP_Y
        parts = [
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" font-family="sans-serif" '
            'font-size="12">',
            '<defs><marker id="a" viewBox="0 0 8 8" refX="8" refY="4" markerWidth="8" markerHeight="8" orient="auto">'
            '<path d="M0 0L8 4L0 8z" fill="#5f6368"/></marker></defs>',
        ]
        for source, target in self.arrows:
            (x1, y1), (x2, y2) = places[source], places[target]
            x1, y1, y2 = x1 + BOX_WIDTH, y1 + BOX_HEIGHT // 2, y2 + BOX_HEIGHT // 2
            if x2 <= x1:  # back, as where an agent writes what another part reads
                x1, x2 = x1 - BOX_WIDTH, x2 + BOX_WIDTH
            bend = (x1 + x2) // 2
            parts.append(
                f'<path d="M{x1} {y1}C{bend} {y1} {bend} {y2} {x2} {y2}" fill="none" stroke="#5f6368" '
                'marker-end="url(#a)"/>'
            )
        for box, (x, y) in places.items():
            radius = {AGENT: BOX_HEIGHT // 2, TABLE: 8}.get(box.kind, 2)
            shown = box.name if len(box.name) <= LETTERS_MAX else f"{box.name[: LETTERS_MAX - 1]}…"
            parts.append(
                f"<g><title>{escape(box.kind)} {escape(box.name)}</title>"
                f'<rect x="{x}" y="{y}" width="{BOX_WIDTH}" height="{BOX_HEIGHT}" rx="{radius}" '
                f'fill="{FILLS[box.kind]}" stroke="#5f6368"/>'
                f'<text x="{x + BOX_WIDTH // 2}" y="{y + BOX_HEIGHT // 2 + 4}" text-anchor="middle">{escape(shown)}'
                "</text></g>"
            )
        return "\n".join([*parts, "</svg>"])

    def _columns(self) -> dict[Box, int]:
        """The column of each box: the longest way from a box that reads nothing; ways in a circle are not followed."""
        found = dict.fromkeys(self.boxes, 0)
        for _ in self.boxes:
            moved = False
            for source, target in self.arrows:
                if found[target] <= found[source] < len(self.boxes) and not self._reaches(target, source):
                    found[target] = found[source] + 1
                    moved = True
            if not moved:
                break
        return found

    def _reaches(self, start: Box, end: Box) -> bool:
        seen, waiting = {start}, [start]
        while waiting:
            box = waiting.pop()
            for source, target in self.arrows:
                if source == box and target not in seen:
                    if target == end:
                        return True
                    seen.add(target)
                    waiting.append(target)
        return False

    def as_json(self) -> dict[str, Any]:
        return {
            "app": self.app,
            "boxes": [box._asdict() for box in self.boxes],
            "arrows": [[source._asdict(), target._asdict()] for source, target in self.arrows],
            "subtopologies": {name: [box._asdict() for box in boxes] for name, boxes in self.parts.items()},
        }


def _mermaid_box(id: str, box: Box) -> str:
    before, after = SHAPES[box.kind]
    return f'{id}{before}"{_mermaid_text(box.name)}"{after}'


def _mermaid_text(text: str) -> str:
    """Mermaid has codes as HTML has, with # for &."""
    return escape(text.replace("#", "#35;"), quote=False).replace('"', "&quot;").replace("&", "#")


def of(app: App) -> Drawing:
    """Raises AppError for an app that cannot run."""
    drawing = Drawing(app.id)
    topology = app.topology()
    for agent in app.all_agents():
        for topic in agent.reads.names:
            drawing.arrow(Box(TOPIC, topic), Box(AGENT, agent.name))
        _draw_agent(drawing, agent)
    for step in (each.target for agent in app.agents for each in agent.steps):
        writer = next(each for each in app.all_agents() if each.name.endswith(f">{step.get_topic_name()}"))
        drawing.arrow(Box(AGENT, writer.name), Box(TOPIC, step.get_topic_name()))
    _draw_graph(drawing, app)
    for name, each in topology.subtopologies.items():
        drawing.parts[name] = [box for box in drawing.boxes if _is_in(drawing, box, each)]
    return drawing


def _draw_agent(drawing: Drawing, agent: Agent) -> None:
    box = Box(AGENT, agent.name)
    for table in (*agent.tables, *agent.global_tables):
        drawing.arrow(box, Box(TABLE, table))
    written = [each for each in (*used(agent.function, (Topic,)), *agent.sinks) if isinstance(each, Topic)]
    for topic in written:
        for name in topic.names:
            drawing.arrow(box, Box(TOPIC, name))


def _draw_graph(drawing: Drawing, app: App) -> None:
    graph = app.pipeline.graph
    agents = {agent.node: agent for agent in app.agents if agent.node is not None}
    for node in graph.nodes.values():
        if node.kind is Kind.TOPIC:
            continue
        box = Box(AGENT, agents[node.name].name) if node.kind is Kind.AGENT else Box(STEP, node.name)
        if node.kind in (Kind.SINK, Kind.REPARTITION):
            box = Box(TOPIC, node.topics[0])
        for output in node.sources:
            source = graph.nodes[output.node]
            if source.kind is Kind.TOPIC:
                for topic in source.topics:
                    drawing.arrow(Box(TOPIC, topic), box)
            else:
                drawing.arrow(Box(STEP, source.name), box)
        for table in (*(spec.name for spec in node.specs), *node.reads, *node.global_tables):
            if table != node.name:
                drawing.arrow(box, Box(TABLE, table))
        if node.kind is Kind.AGENT:
            _draw_agent(drawing, agents[node.name])


def _is_in(drawing: Drawing, box: Box, part: SubTopology) -> bool:
    """Whether a box belongs to a sub-topology: its topics, its tables, and what comes of its topics before the next."""
    if box.kind == TOPIC:
        return box.name in part.topics
    if box.kind == TABLE:
        return box.name in part.tables
    waiting, seen = [box], {box}
    while waiting:
        each = waiting.pop()
        for source, target in drawing.arrows:
            if target == each and source not in seen and source.kind != TABLE:
                if source.kind == TOPIC:
                    return source.name in part.topics
                seen.add(source)
                waiting.append(source)
    return False
