"""`isthmus demo`: three airports, one aggregate, answers from Spark, with two kills in between; it checks itself.

The order of things: start the topology, replay the three airports while mirrors, stream app and this page's watch
work, kill a mirror and a broker, wait until every hop holds all there is, ask Spark, compare all of it with the CSV.
With `--chaos` each datacenter has three brokers, and loses a leader and its controller in place of that.
The topology runs on a `Stage`: as processes, or in containers; replays and Spark are jobs of this machine either way.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import shutil
import signal
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from isthmus.client import Admin, TopicPartition
from isthmus.client.partitioner import partition_for_key
from isthmus.connectors.errors import SessionError
from isthmus.connectors.session import check_java
from isthmus.deploy.errors import DeployError
from isthmus.deploy.launch import PORT_BASE, python
from isthmus.deploy.nodes import kind_of, nodes
from isthmus.deploy.supervisor import Event, ProcessSpec, State, Status, Supervisor
from isthmus.deploy.topology import Topology, load, with_brokers
from isthmus.testing.owner import left_folders, make_folder, remove_left_folders

from . import check, report
from .composed import Composed, end_left, was_composed
from .events import AIRPORTS, PARTITIONS, Flight, events_of, fleet_events, read_flights
from .replay import FAULTS, partition_of, replay_fleet
from .screen import Screen
from .stage import TOPOLOGY, DemoError, Stage
from .supervised import Supervised
from .watch import AGGREGATE, History, Watch, delta_events

PREFIX = "isthmus-demo-"  # of temporary folders; the process that one is of follows
ALL_FLIGHTS = 336_776
SAMPLE_S = 0.1
DRAIN_TIMEOUT_S, CHAOS_DRAIN_TIMEOUT_S = 300.0, 600.0
SPARK_TIMEOUT_S = 600.0
SETTLE_S, SETTLING_S = 30.0, 1.0  # joins and spells wait until topics without records count as resting
# Replays take so long at the least: all must be under way for kills to mean much, and a broker back before the next.
REPLAY_S, CALM_REPLAY_S, CHAOS_REPLAY_S = 8.0, 3.0, 30.0
KILL_AT = {"broker": 0.45, "leader": 0.25, "controller": 0.50}  # of the records of that hop
KILL_OTHERS_AT = 0.30
LEADER, CONTROLLER = "leader", "controller"  # of a datacenter: whichever broker that is by then
CHAOS_BROKERS = 3
KILL_WINDOW = (0.2, 0.8)
MIRROR, BROKER = "jfk-aggregate-mirror", "ewr-broker"


def main(arguments: Sequence[str]) -> int:
    options = parser().parse_args(arguments)
    try:
        remove_left(options.compose)
        demo = Demo(options)
        try:
            return asyncio.run(demo.run())
        finally:
            demo.clean()
    except (DemoError, DeployError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("\nstopped: nothing of it runs any more", file=sys.stderr)
        return 130


def remove_left(composed: bool) -> None:
    """What a kill -9 left; containers only where Docker is asked for anyway. DemoError."""
    remove_left_folders(PREFIX, spare=was_composed)
    if composed:
        for folder in left_folders(PREFIX):
            end_left(folder, print)


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(prog="isthmus demo", description=__doc__.splitlines()[0])
    made.add_argument("--flights", type=at_least_one, metavar="N", help="only the first N rows of the CSV")
    how = made.add_mutually_exclusive_group()
    how.add_argument("--calm", action="store_true", help="kill nothing")
    how.add_argument(
        "--chaos", action="store_true", help="three brokers a datacenter; kill a leader and the controller of each"
    )
    made.add_argument("--no-spark", action="store_true", help="leave out Spark and Delta; under a minute")
    made.add_argument("--compose", action="store_true", help="run the topology in containers, by docker compose")
    made.add_argument("--port-base", type=int, metavar="PORT", help=f"first port of the containers ({PORT_BASE})")
    made.add_argument("--keep", action="store_true", help="leave the topology and its data running at the end")
    made.add_argument("--report", type=Path, default=Path("flights-report"), help="folder of plots and page")
    made.add_argument("--data", type=Path, help="folder of data and logs (default: a temporary one)")
    made.add_argument("--kill", action="append", default=[], metavar="PROCESS", help="kill these instead, see topology")
    made.add_argument(
        "--fault", type=fault, help="plant withheld|doubled|altered|swapped:ROW, to see the check find it"
    )
    return made


def at_least_one(text: str) -> int:
    if not text.isdigit() or not int(text):
        raise argparse.ArgumentTypeError(f"'{text}' is not a number of flights, from 1 to {ALL_FLIGHTS:,}")
    return int(text)


def fault(text: str) -> str:
    kind, _, row = text.partition(":")
    if kind not in FAULTS or not row.isdigit():
        raise argparse.ArgumentTypeError(f"'{text}' is none: write {', '.join(FAULTS)}, a colon and a row of the CSV")
    return text


class Checked(NamedTuple):
    """What a topic has, and how that compares with the CSV."""

    found: Mapping[Any, Any]
    verdict: check.Verdict


class Demo:
    """One run. `folder` holds what the stage keeps, the jobs' logs and supervisor's state, and what Spark writes."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.options = options
        self.history = History()
        self.kept = options.keep
        self.made = options.data is None and not options.keep
        default = Path(".isthmus") / ("flights-compose" if options.compose else "flights")
        self.folder = Path(options.data or (default if options.keep else make_folder(PREFIX)))
        self.file = TOPOLOGY
        self.plan: list[str] = [] if options.calm else options.kill or [MIRROR, BROKER]
        self.killed: list[str] = []
        self.said: dict[str, tuple[State, int]] = {}
        self.overlapped: dict[str, bool] = {}

    async def run(self) -> int:
        if not self.options.no_spark:
            try:
                check_java()
            except SessionError as error:
                raise DemoError(f"{error}; or run it without Spark: isthmus demo --no-spark") from None
        flights = read_flights(self.options.flights)
        events = 2 * len(flights)
        totals = {name.lower(): 2 * sum(f.origin == name for f in flights) for name in AIRPORTS}
        self.screen = Screen(self.history, totals)
        self.options.report.mkdir(parents=True, exist_ok=True)  # or say now that it cannot be written
        topology = self.chosen()
        self.check_plan(topology)
        self.topology = topology
        self.stage = stage = self.staged(topology)
        stage.check()
        stopping = stop_on_signals(asyncio.current_task())
        jobs = self.jobs = Supervisor(self.folder / "jobs", self.on_job)
        watch = Watch(stage.addresses)
        looking: asyncio.Task[None] | None = None
        good = False
        try:
            await stage.start(self.screen.say)
            self.screen.say(f"up: {', '.join(f'{name} {address}' for name, address in stage.addresses.items())}")
            looking = asyncio.create_task(self.look())
            with self.screen:
                self.screen.say(f"a fleet of {await replay_fleet(stage.addresses[AGGREGATE]):,} planes")
                self.screen.say(f"replaying {len(flights):,} flights as {events:,} events")
                self.start_replays(jobs, totals)
                if not self.options.no_spark:
                    self.start_spark(jobs)
                await self.follow(watch, jobs, totals)
                answers = [] if self.options.no_spark else await self.ask_spark(jobs)
            good = await self.finish(watch, flights, answers)
        except asyncio.CancelledError:
            if stopping.is_set():
                raise KeyboardInterrupt from None
            raise
        finally:
            if looking:
                looking.cancel()
            await watch.close()
            await jobs.stop()
            if not (self.kept and good):
                await stage.stop()
        return 0 if good else 1

    def chosen(self) -> Topology:
        """The topology, and `self.file` that says it."""
        topology = load(TOPOLOGY)
        if not self.options.chaos:
            return topology
        several = with_brokers(topology, CHAOS_BROKERS).model_dump(exclude_none=True)
        for worker in several["workers"]:
            worker["app"] = str(TOPOLOGY.parent / worker["app"])
        self.folder.mkdir(parents=True, exist_ok=True)
        self.file = self.folder.resolve() / TOPOLOGY.name
        self.file.write_text(json.dumps(several, indent=1))  # JSON is YAML
        if not self.options.kill:
            self.plan = [f"{name}-{what}" for name in topology.datacenters for what in (LEADER, CONTROLLER)]
        return load(self.file)

    def staged(self, topology: Topology) -> Stage:
        if self.options.compose:
            return Composed(topology, self.file, self.folder, self.options.port_base or PORT_BASE)
        if self.options.port_base is not None:
            raise DemoError("--port-base is for containers: it goes with --compose")
        return Supervised(topology, self.file, self.folder, self.kept)

    def clean(self) -> None:
        """Remove the folder, if it was made for this run."""
        if self.made:
            shutil.rmtree(self.folder, ignore_errors=True)

    def check_plan(self, topology: Topology) -> None:
        names = [node.process for name, datacenter in topology.datacenters.items() for node in nodes(name, datacenter)]
        names += [f"{name}-{what}" for name in topology.datacenters for what in (LEADER, CONTROLLER)]
        names += [f"{link.name}-mirror" for link in topology.mirrors]
        names += [f"{worker.name}-worker" for worker in topology.workers]
        names += [f"replay-{name.lower()}" for name in AIRPORTS]
        names += [] if self.options.no_spark else ["spark"]
        for name in self.plan:
            if name not in names:
                raise DemoError(f"--kill {name}: there are {', '.join(names)}")

    # --- Starting -----------------------------------------------------------------------------------

    def start_replays(self, jobs: Supervisor, totals: Mapping[str, int]) -> None:
        for name, total in totals.items():
            command = [*python("examples.flights.replay"), "--origin", name.upper()]
            command += ["--bootstrap", self.stage.addresses[name]]
            if self.options.flights is not None:
                command += ["--flights", str(self.options.flights)]
            killing_s = CHAOS_REPLAY_S if self.options.chaos else REPLAY_S
            least_s = CALM_REPLAY_S if self.options.calm else killing_s * self.stage.pace
            command += ["--rate", str(max(1, int(total / least_s)))]
            if self.options.fault:
                command += ["--fault", self.options.fault]
            jobs.start(ProcessSpec(f"replay-{name}", tuple(command), "job"))

    def start_spark(self, jobs: Supervisor) -> None:
        """Spark starts at once and waits for the file `go`, so that its JVM is warm when the data is there."""
        command = (
            *python("examples.flights.queries"), "--bootstrap", self.stage.addresses[AGGREGATE],
            "--delta", str(self.delta), "--out", str(self.answers), "--go", str(self.folder / "go"),
        )  # fmt: skip
        jobs.start(ProcessSpec("spark", command, "job")).on_stdout_line = self.on_spark_line

    @property
    def delta(self) -> Path:
        return self.stage.folder / "delta" / "flights"

    @property
    def answers(self) -> Path:
        return self.stage.folder / "answers.json"

    # --- While it runs ------------------------------------------------------------------------------

    async def follow(self, watch: Watch, jobs: Supervisor, totals: Mapping[str, int]) -> None:
        """Sample every hop, do the kills, return when replays are done and every hop holds what its source has."""
        replays = [process for name, process in jobs.processes.items() if name.startswith("replay-")]
        timeout_s = CHAOS_DRAIN_TIMEOUT_S if self.options.chaos else DRAIN_TIMEOUT_S
        deadline = asyncio.get_running_loop().time() + timeout_s
        plan = [target for target in self.plan if target != "spark"]
        killing: list[asyncio.Task[None]] = []  # the samples go on meanwhile
        while True:
            sample = await watch.sample(self.history.now_s())
            self.screen.update(sample)
            self.history.samples.append(sample)
            for name, total in totals.items():
                if name not in self.overlapped and sample.mirrored[name]:
                    self.overlapped[name] = sample.source[name] < total
            for target in [target for target in plan if self.due(target, sample, totals)]:
                share = self.share_in_window(target, sample, totals)
                if await self.is_whole(target):
                    plan.remove(target)
                    killing.append(asyncio.create_task(self.kill(target, share, watch)))
            for task in killing:
                if task.done():
                    task.result()
            for process in replays:
                if process.status.state is State.FAILED:
                    raise DemoError(f"{process.spec.name}: {process.status.reason}")
            arrived = sum(sample.mirrored.values())
            if (
                all(process.status.state is State.FINISHED for process in replays)
                and sample.source == sample.mirrored
                and sample.streamed == arrived == sum(sample.source.values())
            ):
                break
            if asyncio.get_running_loop().time() > deadline:
                raise DemoError(
                    f"after {timeout_s:.0f} s not all has arrived: {sample}; what it says: {self.stage.logs}"
                )
            await asyncio.sleep(SAMPLE_S)
        await asyncio.gather(*killing)
        if plan:
            raise DemoError(f"{plan[0]} was to be killed in mid-run, but all was over before: use more --flights")
        restarts = {each.name: each.restarts for each in await self.stage.processes()}
        for name in self.killed:
            if not restarts.get(name, 1):
                raise DemoError(f"{name} was killed, and nothing started it again: all went on without it")
        late = [name for name, overlapped in self.overlapped.items() if not overlapped]
        if late and not self.options.fault:
            raise DemoError(f"the mirror of {late[0]} appended nothing before the last record was produced")
        self.screen.say("every hop holds all there is")

    def share(self, target: str, sample: Any, totals: Mapping[str, int]) -> float:
        """How much of its hop's records a process has seen go through."""
        name = target.partition("-")[0].removeprefix("replay")
        everything = sum(totals.values())
        if target == "spark":
            return self.screen.rows_in_delta / everything
        if target.startswith("replay-"):
            name = target.removeprefix("replay-")
        if target.endswith("-worker"):
            return sample.streamed / everything
        if target.endswith("-mirror"):
            return sample.mirrored[name] / max(1, totals[name])  # the first flights may be of one airport alone
        if name == AGGREGATE:
            return sum(sample.mirrored.values()) / everything
        return sample.source[name] / max(1, totals[name])

    def due(self, target: str, sample: Any, totals: Mapping[str, int]) -> bool:
        return self.share(target, sample, totals) >= KILL_AT.get(kind_of(target), KILL_OTHERS_AT)

    async def is_whole(self, target: str) -> bool:
        """Whether a cluster has all its brokers: with two of three killed at once it only stands still."""
        name, _, what = target.rpartition("-")
        if what not in (LEADER, CONTROLLER):
            return True
        return all(
            each.state is State.READY for each in await self.stage.processes() if each.name.startswith(f"{name}-broker")
        )

    async def found(self, target: str, watch: Watch) -> str:
        """The process that is meant."""
        name, _, what = target.rpartition("-")
        if what not in (LEADER, CONTROLLER):
            return target
        client = await watch.client(name)
        if what == LEADER:
            topic = f"{AIRPORTS[0].lower()}.flights" if name == AGGREGATE else "flights"
            node_id = await client.leader_of(TopicPartition(topic, 0))
        else:
            node_id = (await Admin(client).describe_quorum())[0].leader_id
        there = nodes(name, self.topology.datacenters[name])
        return next(node.process for node in there if node.node_id in (None, node_id))

    def share_in_window(self, target: str, sample: Any, totals: Mapping[str, int]) -> float:
        share = self.share(target, sample, totals)
        if not KILL_WINDOW[0] <= share <= KILL_WINDOW[1]:
            raise DemoError(
                f"{target} was to be killed in mid-run, but {share:.0%} had gone through: use more --flights"
            )
        return share

    async def kill(self, target: str, share: float, watch: Watch) -> None:
        if target in self.jobs.processes:
            self.kill_job(target, share)
            return
        process = await self.found(target, watch)
        what = await self.stage.kill(process)
        self.say_killed(process, what if process == target else f"{what}, the {target.rpartition('-')[2]}", share)

    def kill_job(self, name: str, share: float) -> None:
        pid = self.jobs.processes[name].status.pid
        if not pid:
            raise DemoError(f"--kill {name}: it does not run just now")
        os.kill(pid, signal.SIGKILL)
        self.say_killed(name, f"pid {pid}", share)

    def say_killed(self, target: str, what: str, share: float) -> None:
        self.history.kills.append((self.history.now_s(), target))
        self.killed.append(target)
        self.screen.killed(f"kill -9 {target} ({what}) with {share:.0%} of its records through")

    async def look(self) -> None:
        """Say what becomes of the topology's processes."""
        while True:
            with contextlib.suppress(DeployError):  # a look in between, such as at a container that is just removed
                for each in await self.stage.processes():
                    self.tell(each)
            await asyncio.sleep(self.stage.look_every_s)

    def tell(self, each: Status) -> None:
        before = self.said.get(each.name)
        self.said[each.name] = (each.state, each.restarts)
        if before is None or before == self.said[each.name]:
            return
        if each.state is State.READY and each.restarts:
            self.screen.say(f"{each.name} works again (pid {each.pid}, restart {each.restarts})", "green")
        elif each.reason:
            self.screen.say(f"{each.name} {each.state}: {each.reason}", "yellow")

    def on_job(self, event: Event) -> None:
        if event.state is State.BACKOFF:
            self.screen.say(f"{event.process} {event.state}: {event.text}", "yellow")

    # --- Spark --------------------------------------------------------------------------------------

    def on_spark_line(self, line: str) -> None:
        """`rows N` says how much is in the Delta table; `spark …` is for people."""
        what, _, rest = line.partition(" ")
        if what == "rows":
            self.screen.rows_in_delta = int(rest)
            self.history.delta.append((self.history.now_s(), int(rest)))
            last = self.history.samples[-1]
            self.screen.update(last)
            if "spark" in self.plan and "spark" not in self.killed and self.due("spark", last, self.screen.totals):
                self.kill_job("spark", self.share_in_window("spark", last, self.screen.totals))
        elif what == "spark":
            self.screen.say(line)

    async def ask_spark(self, jobs: Supervisor) -> list[dict[str, Any]]:
        (self.folder / "go").touch()
        self.screen.say("Spark reads the aggregate")
        await jobs.until("spark", State.FINISHED, timeout_s=SPARK_TIMEOUT_S)
        if "spark" in self.plan and "spark" not in self.killed:
            raise DemoError("Spark was to be killed in mid-run, but was done before: use more --flights")
        return json.loads(self.answers.read_text())

    # --- The end ------------------------------------------------------------------------------------

    async def finish(self, watch: Watch, flights: Sequence[Flight], answers: Sequence[Mapping[str, Any]]) -> bool:
        """Compare everything with the CSV, show it, write the report; whether all is right."""
        from isthmus.streams import table_reader

        events = events_of(flights)
        expected = check.expected_events(events)
        verdicts = [check.check_events("aggregate", expected, await watch.events())]
        complete = check.watermarks(events, lambda event: partition_of(event, PARTITIONS))
        committed = await table_reader.read(
            await watch.client(AGGREGATE), "delays", ("hours", "planes"), windowed=("hours",)
        )
        names = ("scheduled", "departed", "cancelled", "delay_sum")
        hours = check.merge_hours(
            ((row.key, row.window_start_ms), dict(zip(names, row.value, strict=True)))
            for row in committed.rows
            if row.table == "hours"
        )
        verdicts.append(check.check_hours(check.expected_hours(flights), hours))
        planes = sorted((row.key, row.value) for row in committed.rows if row.table == "planes")
        last = {tail: departures[-1][1] for (tail, _), departures in planes}  # of its last period
        verdicts.append(check.check_rows("planes table", check.expected_last(flights), last))
        verdicts.append(check.check_rows("delays.carried", check.expected_carried(flights), await watch.carried()))
        late, spells = await self.spells(watch, flights, complete, whole=check.all_right(verdicts))
        verdicts += [late.verdict, spells.verdict]
        if not self.options.no_spark:
            verdicts.append(check.check_events("Delta table", expected, delta_events(str(self.delta))))
        answers = [*report.stream_answers(late.found, spells.found), *answers]
        for answer in answers:
            self.screen.answer(answer["title"], answer["columns"], answer["rows"])
        self.screen.console.print()
        for verdict in verdicts:
            self.screen.verdict(verdict)
        kills = f", {' and '.join(self.killed)} killed on the way" if self.killed else ""
        lead = f"{len(flights):,} flights, {2 * len(flights):,} events in {self.history.now_s():.0f} s{kills}."
        page = report.write(self.options.report, self.history, hours, spells.found, verdicts, answers, lead)
        self.screen.console.print(f"\nreport: {page}")
        self.next_steps()
        return check.all_right(verdicts)

    async def spells(
        self, watch: Watch, flights: Sequence[Flight], complete: Mapping[int, int], whole: bool
    ) -> tuple[Checked, Checked]:
        """What is in `delays.late` and in `delays.spells`. whole: all that came before is right, so that they are
        waited for."""
        fleet = {(event.key or b"").decode(): event.body for event in fleet_events()}

        def complete_ms(tail: str) -> int:
            return complete.get(partition_for_key(tail.encode(), PARTITIONS), -1)

        late = check.expected_late(flights, fleet, complete_ms)
        spells = check.expected_spells(flights, fleet, complete_ms)
        deadline = asyncio.get_running_loop().time() + (SETTLE_S if whole else 0)
        while True:
            has_late, has_spells = await watch.late(), await watch.spells()
            verdicts = (
                check.check_rows("delays.late", late, has_late),
                check.check_rows("delays.spells", spells, has_spells),
            )
            if check.all_right(verdicts) or asyncio.get_running_loop().time() > deadline:
                return Checked(has_late, verdicts[0]), Checked(has_spells, verdicts[1])
            await asyncio.sleep(SETTLING_S)

    def next_steps(self) -> None:
        """Commands to try with one's own tools; they need the topology, so without --keep that comes first."""
        say = self.screen.console.print
        if not self.kept:
            say(f"to look around yourself: isthmus demo {'--compose ' if self.options.compose else ''}--keep, then")
        known = self.kept or self.options.compose  # the ports of containers are always the same
        port = self.stage.addresses[AGGREGATE] if known else "HOST:PORT (shown at the start)"
        say(f"  kcat -b {port} -L")
        say(f"  kcat -b {port} -C -t ewr.flights -o beginning -c 5")
        say(f"  kcat -b {port} -C -t delays.spells -e -q | tail")
        if self.kept:
            say(f"  isthmus mirror status -b {AGGREGATE}")
            for step in self.stage.next_steps():
                say(f"  {step}")


def stop_on_signals(task: asyncio.Task[Any] | None) -> asyncio.Event:
    """Ctrl-C, SIGTERM and the end of the terminal cancel the run, whose `finally` stops every process."""
    stopping = asyncio.Event()

    def stop() -> None:
        if not stopping.is_set() and task:
            stopping.set()
            task.cancel()

    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        if number != signal.SIGHUP or signal.getsignal(number) != signal.SIG_IGN:  # nohup
            asyncio.get_running_loop().add_signal_handler(number, stop)
    return stopping
