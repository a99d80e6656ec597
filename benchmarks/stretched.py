"""The price of a cluster that is stretched over three datacenters: `python -m benchmarks.stretched --delays 0,10`.

Three brokers, each a voter, each in a datacenter of its own. Whatever they say to one another takes so many
milliseconds one way (`far.py`); producer and consumer are in the leader's datacenter. 1,000 records of 100 bytes a
second with acks=all, from when each was due until the consumer has it: by then the other datacenters have it. Prints a
Markdown table, Isthmus beside Kafka.
"""

from __future__ import annotations

import argparse
import contextlib
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from integration_tests.brokers import ROOT, BrokerCluster
from integration_tests.peers import peers
from integration_tests.peers.peers import free_ports

from .clusters import in_sync
from .disk import SKIP_S, OpenLoop
from .results import number
from .sides import KAFKA, SETTINGS, KafkaNode, Side, isthmus_side

RATE = 1000.0
SIZE = 3
PROTOCOLS = "PLAINTEXT:PLAINTEXT,INTERNAL:PLAINTEXT,CONTROLLER:PLAINTEXT"
BETWEEN = {"inter.broker.listener.name": "INTERNAL", "listener.security.protocol.map": PROTOCOLS}


class Ports:
    """clients: of each broker's listener for clients. internal, controllers: of what is behind `far.py`, whose ports
    begin with far_."""

    def __init__(self) -> None:
        found = free_ports(5 * SIZE)
        self.clients, self.internal, self.controllers, self.far_internal, self.far_controllers = (
            found[at : at + SIZE] for at in range(0, 5 * SIZE, SIZE)
        )

    def of(self, i: int) -> dict[str, str]:
        """Settings of the broker with this index."""
        voters = ",".join(f"{n}@127.0.0.1:{port}" for n, port in enumerate(self.far_controllers, 1))
        return {
            **BETWEEN,
            "broker.rack": f"dc{i + 1}",
            "advertised.listeners": (
                f"PLAINTEXT://127.0.0.1:{self.clients[i]},INTERNAL://127.0.0.1:{self.far_internal[i]},"
                f"CONTROLLER://127.0.0.1:{self.far_controllers[i]}"
            ),
            "controller.quorum.voters": voters,
        }

    @contextlib.contextmanager
    def far(self, delay_ms: float) -> Iterator[None]:
        pairs = zip([*self.far_internal, *self.far_controllers], [*self.internal, *self.controllers], strict=True)
        command = [sys.executable, "-m", "benchmarks.far", str(delay_ms), *(f"{far}:{near}" for far, near in pairs)]
        with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
            try:
                assert process.stdout
                if process.stdout.readline() != "ready\n":
                    raise RuntimeError(f"{' '.join(command)} did not get ready")
                yield
            finally:
                process.kill()


@contextlib.contextmanager
def isthmus(folder: Path, ports: Ports) -> Iterator[Side]:
    made = BrokerCluster(folder, SIZE, SETTINGS)
    for i, broker in enumerate(made.brokers.values()):
        broker.address = f"127.0.0.1:{ports.clients[i]}"
        broker.settings |= ports.of(i)
        broker.listen = [
            f"INTERNAL://127.0.0.1:{ports.internal[i]}", f"CONTROLLER://127.0.0.1:{ports.controllers[i]}"
        ]  # fmt: skip
    try:
        made.start()
        yield isthmus_side(made.brokers)
    finally:
        made.kill()


@contextlib.contextmanager
def kafka(folder: Path, ports: Ports) -> Iterator[Side]:
    made = peers.Cluster.create(folder / "kafka", SIZE, properties=SETTINGS)
    for i, node in enumerate(made.nodes):
        listeners = ",".join(
            f"{name}://127.0.0.1:{port}"
            for name, port in (
                ("PLAINTEXT", ports.clients[i]), ("INTERNAL", ports.internal[i]), ("CONTROLLER", ports.controllers[i])
            )
        )  # fmt: skip
        settings = {**node.properties, **ports.of(i), "listeners": listeners}
        (node.folder / "server.properties").write_text("".join(f"{k}={v}\n" for k, v in settings.items()))
    try:
        made.start()
        yield Side(KAFKA, {node.id: KafkaNode(node, SIZE) for node in made.nodes}, {})
    finally:
        made.kill()


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.stretched", description=__doc__)
    parser.add_argument("--delays", default="0,1,5,10", help="milliseconds one way (%(default)s)")
    parser.add_argument("--seconds", type=float, default=5.0, help="of each sample (%(default)s)")
    parser.add_argument("--warm", type=float, default=10.0, help="seconds of load before (%(default)s)")
    parser.add_argument("--alone", action="store_true", help="Isthmus only, without Kafka")
    given = parser.parse_args()
    print("| one way | side | p50 ms | p99 ms | longest ms |\n|---|---|---|---|---|")
    for delay in given.delays.split(","):
        for make in (isthmus,) if given.alone else (isthmus, kafka):
            with contextlib.ExitStack() as held:
                ports = Ports()
                held.enter_context(ports.far(float(delay)))
                folder = Path(held.enter_context(tempfile.TemporaryDirectory(prefix="isthmus-bench-")))
                side = held.enter_context(make(folder, ports))
                side.create_topic("stretched", options={"min.insync.replicas": "2"})
                in_sync(side, "stretched")
                for seconds in given.warm, given.seconds:
                    with OpenLoop(side, "stretched", RATE, seconds + SKIP_S) as running:
                        late = running.result()
                cells = " | ".join(number(late[key]) for key in ("p50", "p99", "max"))
                print(f"| {delay} ms | {side.name} | {cells} |", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
