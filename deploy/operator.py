"""What is done to a topology while it runs: one of its processes is stopped, started or restarted, or all of it is made
to be as its file says now.

It lives in the supervisor's process, and is asked by commands through `control.py`. One thing is done at a time.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..client import Admin
from ..client.admin import NewTopic
from ..client.errors import ClientError
from ..protocol.errors import KafkaError
from .chosen import note_made
from .control import Say
from .errors import DeployError, SupervisorError
from .launch import START_TIMEOUT_S, Layout, failures
from .nodes import KIND
from .plan import LISTEN, ProcessStep, arguments, plan_processes
from .supervisor import ProcessSpec, State, Supervisor
from .topics import TopicStep, administered, do, new_topic, plan_topics, wanted
from .topology import parse

if TYPE_CHECKING:
    from .topology import Topology

IN_SYNC_TIMEOUT_S = 120.0  # for a broker that was restarted to have again what the others have
IN_SYNC_POLL_S = 0.2
KINDS = (KIND, "mirror", "worker")
NOT_DONE = "What else the file says was not done: mend it, and apply it again"
LEFT = "it keeps its records: `isthmus topic delete {} -b {}` deletes it"


@dataclass(frozen=True)
class Plan:
    """What is to be done so that a topology is as its file says. notes: what is not done, as rows."""

    layout: Layout
    processes: list[ProcessStep]
    for_later: list[ProcessSpec]
    topics: list[TopicStep]
    notes: list[dict[str, Any]]

    def steps(self, *verbs: str, is_broker: bool) -> list[ProcessStep]:
        return [each for each in self.processes if each.verb in verbs and (each.spec.kind == KIND) is is_broker]

    def rows(self) -> list[dict[str, Any]]:
        """For people and programs, in the order in which they are done."""
        ends = [*self.steps("stop", is_broker=False), *self.steps("stop", is_broker=True)]
        brokers = self.steps("start", "restart", is_broker=True)
        others = self.steps("start", "restart", is_broker=False)
        topics = map(topic_row, self.topics)
        return [*map(_process_row, [*ends, *brokers]), *topics, *map(_process_row, others), *self.notes]


def _row(verb: str, kind: str, what: str, details: str) -> dict[str, Any]:
    return {"do": verb, "kind": kind, "what": what, "details": details}


def _process_row(step: ProcessStep) -> dict[str, Any]:
    return _row(step.verb, step.spec.kind, step.spec.name, "; ".join(step.details))


def topic_row(step: TopicStep) -> dict[str, Any]:
    return _row(step.verb, "topic", f"{step.topic} in {step.datacenter}", "; ".join(step.details))


class Operator:
    """Of one supervisor and what it runs. `layout` is what the topology is to be."""

    def __init__(self, layout: Layout, supervisor: Supervisor) -> None:
        self.layout = layout
        self.supervisor = supervisor
        self.does = "up"  # what is under way

    @property
    def _name(self) -> str:
        return self.layout.topology.name

    async def handle(self, request: Mapping[str, Any], say: Say) -> dict[str, Any]:
        """Do what a command asks for. Raises DeployError."""
        what = str(request.get("do"))
        if what == "ping":
            return {}
        if self.does:
            raise SupervisorError(f"{self._name} is busy (`isthmus {self.does}`): try again when that is done")
        self.does = what
        try:
            match what:
                case "apply":
                    topology = parse(request["text"], request["file"])
                    return await self.apply(topology, Path(request["file"]), bool(request["is_trial"]), say)
                case "stop":
                    return await self.stop(self.find(request["name"]))
                case "start":
                    return await self.start(self.find(request["name"]))
                case "restart":
                    return await self.restart(self.find(request["name"]))
            raise SupervisorError(f"the supervisor knows no '{what}': it is of another version")
        finally:
            if self.does == what:
                self.does = ""

    # --- One process --------------------------------------------------------------------------------

    def find(self, name: str) -> str:
        """The process that a person means: by its name, or that of its mirror, worker or datacenter. DeployError."""
        known = self.supervisor.processes
        if name in known:
            return name
        found = [each for kind in KINDS for each in known if each == f"{name}-{kind}"]
        found = found or [each for each in known if each.startswith(f"{name}-{KIND}-")]
        if len(found) == 1:
            return found[0]
        if found:
            raise DeployError(f"'{name}' may be {' or '.join(found)}: say which")
        raise DeployError(f"no process is called '{name}': there are {', '.join(known)}")

    async def stop(self, name: str) -> dict[str, Any]:
        process = self.supervisor.processes[name]
        if process.task.done():
            raise DeployError(f"{name} does not run: it is {process.status.state}")
        await process.stop()
        return self._said(name)

    async def start(self, name: str) -> dict[str, Any]:
        process = self.supervisor.processes[name]
        if not process.task.done():
            raise DeployError(f"{name} runs already: it is {process.status.state}")
        return await self._begin(name)

    async def restart(self, name: str) -> dict[str, Any]:
        """A broker of several is in sync again at the end."""
        await self.supervisor.processes[name].stop()
        said = await self._begin(name)
        if said["state"] == State.READY:
            await self._in_sync_again(self.supervisor.processes[name].spec, self.layout)
        return said

    async def _begin(self, name: str) -> dict[str, Any]:
        workers = {each.name: each for each in map(self.layout.worker, self.layout.topology.workers)}
        self.supervisor.start(workers.get(name, self.supervisor.processes[name].spec))  # with what an app's file is now
        await failures(self.supervisor, [name])
        return self._said(name)

    def _said(self, name: str) -> dict[str, Any]:
        return asdict(self.supervisor.processes[name].status)

    # --- All of it ----------------------------------------------------------------------------------

    async def apply(self, topology: Topology, file: Path, is_trial: bool, say: Say) -> dict[str, Any]:
        """Make it so, or with is_trial only tell what would be done. DeployError: it cannot, and nothing was changed,
        unless the text says how far it came."""
        plan = await self.plan(topology, file)
        rows = plan.rows()
        if is_trial or not rows:
            if not is_trial:
                self._take(plan)
            return {"steps": rows, "failed": self._failed()}
        plan.layout.keep()
        await self._do(plan, say)
        return {"steps": rows, "failed": self._failed()}

    def _failed(self) -> list[dict[str, Any]]:
        """What does not work, though it is to."""
        return [self._said(name) for name, each in self.supervisor.processes.items() if each.fails]

    async def plan(self, topology: Topology, file: Path) -> Plan:
        """DeployError lists what cannot be done, with the ways out."""
        if topology.name != self._name:
            raise DeployError(
                f"{file} is the topology {topology.name}, and {self._name} runs here: start the other by `isthmus up`, "
                "in a folder of its own"
            )
        layout = Layout.planned(topology, file, self.layout.folder, self._held())
        running = {name: each.spec for name, each in self.supervisor.processes.items()}
        steps, for_later, refused = plan_processes(running, layout.processes())
        refused += [
            f"worker {each.name}: there is no file {found}"
            for each in topology.workers
            if (found := layout.app_file(each)) and not found.is_file()
        ]
        topics: list[TopicStep] = []
        notes: list[dict[str, Any]] = []
        for name, datacenter in topology.datacenters.items():
            if not any(each.name in running for each in layout.brokers(name)):
                topics += [new_topic(name, each) for each in wanted(datacenter).values()]
                continue
            try:
                found_steps, problems, left = await self._plan_topics(layout, name)
            except DeployError as error:
                if self._made(name) != wanted(datacenter):
                    raise
                notes.append(_row("skip", "topics", f"all in {name}", str(error)))
                continue
            topics += found_steps
            refused += problems
            notes += [_row("leave", "topic", f"{each} in {name}", LEFT.format(each, name)) for each in left]
        if refused:
            raise DeployError("\n".join(refused))
        return Plan(layout, steps, for_later, topics, notes)

    async def _plan_topics(self, layout: Layout, name: str) -> tuple[list[TopicStep], list[str], list[str]]:
        """What is to be done to the topics of a datacenter that runs, what cannot be, and which are left."""
        made, topics = self._made(name), wanted(layout.topology.datacenters[name])
        if not topics and not made:
            return [], [], []
        async with administered(name, layout.addresses[name]) as admin:
            return await plan_topics(admin, name, topics, made)

    def _made(self, name: str) -> Mapping[str, NewTopic]:
        """The topics of a datacenter when the file was applied last."""
        before = self.layout.topology.datacenters.get(name)
        return wanted(before) if before else {}

    def _held(self) -> set[str]:
        """Addresses that our brokers listen on now."""
        listens = [arguments(each.spec).get(LISTEN, "") for each in self.supervisor.processes.values()]
        return {address.rpartition("://")[2] for each in listens for address in each.split(",")}

    async def _do(self, plan: Plan, say: Say) -> None:
        for step in plan.steps("stop", is_broker=False) + plan.steps("stop", is_broker=True):
            await self.supervisor.remove(step.spec.name)
            say(f"{step.spec.name} is stopped")
        new = plan.steps("start", is_broker=True)
        for step in new:
            self.supervisor.start(step.spec)
        try:
            for step in new:
                await self._ready(step.spec.name, say)
        except SupervisorError as error:
            await self._take_back(new)
            raise DeployError(f"{error}. It is stopped again. {NOT_DONE}") from None
        restarted = plan.steps("restart", is_broker=True)
        for step in sorted(
            restarted, key=lambda each: self._serves(each.spec.name)
        ):  # what mends the others comes first
            await self._restart_broker(step, plan.layout, say)
        self._note_made(plan.layout)
        await self._do_topics(plan, say)
        self._take(plan)
        names = []
        for step in plan.steps("start", "restart", is_broker=False):
            if step.verb == "restart":
                await self.supervisor.processes[step.spec.name].stop()
            self.supervisor.start(step.spec)
            names.append(step.spec.name)
        await failures(self.supervisor, names)
        for name in names:
            status = self.supervisor.processes[name].status
            say(f"{name} is {status.state}" + (f": {status.reason}" if status.reason else ""))

    async def _take_back(self, new: list[ProcessStep]) -> None:
        """Brokers were started, and not all got ready. One that goes on trying, or has peers that serve, would have to
        stay as it is. Those of datacenters that ran before are kept where they serve."""
        for step in new:
            is_grown = step.spec.facts["datacenter"] in self.layout.topology.datacenters
            if not (is_grown and self._serves(step.spec.name)):
                await self.supervisor.remove(step.spec.name)
        self.layout.keep()

    def _note_made(self, layout: Layout) -> None:
        """All brokers have served, so that from their next start on none makes a cluster."""
        made = replace(layout, clusters=note_made(layout.folder, layout.clusters))
        for spec in (each for name in layout.topology.datacenters for each in made.brokers(name)):
            self.supervisor.change(spec)

    def _take(self, plan: Plan) -> None:
        """From now on the topology is to be as the plan says."""
        self.layout = plan.layout
        for spec in plan.for_later:
            self.supervisor.change(spec)

    async def _ready(self, name: str, say: Say) -> None:
        await self.supervisor.until(name, State.READY, timeout_s=START_TIMEOUT_S)
        say(f"{name} is ready")

    async def _restart_broker(self, step: ProcessStep, layout: Layout, say: Say) -> None:
        """Of several, one that serves is restarted when the others have all that it has. One that does not start as it
        is to be is started as it was."""
        name = step.spec.name
        if self._serves(name):
            await self._in_sync_again(step.spec, layout)
        old = self.supervisor.processes[name].spec
        await self.supervisor.processes[name].stop()
        self.supervisor.start(step.spec)
        try:
            await self._ready(name, say)
        except SupervisorError as error:
            await self.supervisor.processes[name].stop()
            self.supervisor.start(old)
            await self._ready(name, say)
            raise DeployError(f"{error}. It runs again as before. {NOT_DONE}") from None
        await self._in_sync_again(step.spec, layout)

    def _serves(self, name: str) -> bool:
        return self.supervisor.processes[name].status.state is State.READY

    async def _in_sync_again(self, spec: ProcessSpec, layout: Layout) -> None:
        """Return when a broker has what the others of its cluster have. DeployError: it takes too long."""
        datacenter = str(spec.facts.get("datacenter"))
        if spec.kind == KIND and layout.topology.datacenters[datacenter].brokers > 1:
            async with administered(datacenter, layout.addresses[datacenter]) as admin:
                await _in_sync(admin, spec.name)

    async def _do_topics(self, plan: Plan, say: Say) -> None:
        started = {each.spec.facts["datacenter"] for each in plan.steps("start", is_broker=True)}
        for name in dict.fromkeys(step.datacenter for step in plan.topics):
            steps = [step for step in plan.topics if step.datacenter == name]
            if name in started:  # there may be data of before, which nobody could look at
                steps, refused, _ = await self._plan_topics(plan.layout, name)
                if refused:
                    told = "\n".join(refused)
                    raise DeployError(f"{told}\n{name} was started, and nothing more was done: apply the file again")
            async with administered(name, plan.layout.addresses[name]) as admin:
                await do_topics(admin, steps, say)


async def do_topics(admin: Admin, steps: list[TopicStep], say: Say) -> None:
    """Do it to the topics of one datacenter. Raises KafkaError, ClientError."""
    for step in steps:
        await do(admin, step)
        say(f"topic {step.topic} in {step.datacenter} is {'created' if step.new else 'changed'}")


async def _in_sync(admin: Admin, name: str) -> None:
    """Return when every partition has all its replicas in sync. DeployError: it takes too long."""
    behind: list[str] = []
    try:
        async with asyncio.timeout(IN_SYNC_TIMEOUT_S):
            while True:
                try:
                    behind = [
                        f"{topic.name}-{each.partition_index}"
                        for topic in await admin.all_topics()
                        for each in topic.partitions
                        if len(each.isr_nodes) < len(each.replica_nodes)
                    ]
                    if not behind:
                        return
                except (ClientError, KafkaError) as error:
                    if not error.retriable:
                        raise
                await asyncio.sleep(IN_SYNC_POLL_S)
    except TimeoutError:
        raise DeployError(
            f"{name}: {', '.join(behind[:5]) or 'its cluster'} is not in sync after {IN_SYNC_TIMEOUT_S:.0f} s: see "
            "`isthmus cluster status`, and then do it again"
        ) from None
