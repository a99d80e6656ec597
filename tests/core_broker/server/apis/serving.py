"""A broker's rooms on a folder, without sockets: requests go to the handlers, a `Pending` is awaited."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from isthmus.core_broker.auto_creation import AutoCreation
from isthmus.core_broker.cluster.controller import (
    BrokerHeartbeat,
    Controller,
    CreateTopics,
    IncrementalAlterConfigs,
    Operation,
    RegisterBroker,
    new_topic,
)
from isthmus.core_broker.cluster.image import Endpoint, MetadataImage
from isthmus.core_broker.cluster.metadata_log import MetadataLog
from isthmus.core_broker.cluster.quorum.member import alone
from isthmus.core_broker.cluster.quorum.quorum import MetadataQuorum
from isthmus.core_broker.config import BrokerConfig
from isthmus.core_broker.purgatory import Pending, Purgatory
from isthmus.core_broker.replication.manager import ReplicaManager
from isthmus.core_broker.server._context import Context
from isthmus.core_broker.server.cold_sends import ColdSends
from isthmus.core_broker.server.fetch_sessions import FetchSessions
from isthmus.core_broker.server.preparing import Preparing
from isthmus.core_broker.server.services import Services
from isthmus.core_broker.storage.disk.real_files import RealFiles
from isthmus.core_broker.storage.log.append import Origin
from isthmus.core_broker.storage.manager import LogManager
from isthmus.protocol.messages import MODULES
from isthmus.protocol.messages.incremental_alter_configs import AlterableConfig, AlterConfigsResource
from isthmus.protocol.records import build_batch
from isthmus.runtime import Runtime, system

LISTENER = "PLAINTEXT"
BROKER = 4  # kind of resource


class Serving:
    """Node 1, the only one. `services` is what handlers are given, without coordinators and producer ids."""

    def __init__(self, folder: Path, options: dict[str, str], runtime: Runtime, files: RealFiles | None = None) -> None:
        self.files = files or RealFiles(2)
        self.config = BrokerConfig(options)
        self.runtime = runtime
        self.logs = LogManager(self.files, str(folder), runtime)
        self.image = MetadataImage("cluster-x")
        self.has_session = True
        self.context: Context = None  # type: ignore[assignment]

    async def start(self) -> None:
        await self.logs.open(1)
        metadata_log = await MetadataLog.open(self.files, self.logs.data_dir, self.runtime)
        metadata = MetadataQuorum(metadata_log, self.image, self.runtime, alone(1))
        self.controller = Controller(metadata, self.config, self.runtime, "PLAINTEXT")
        await metadata.start()
        self._take_options()
        self.replicas = ReplicaManager(self.image, self.logs, self.config, self.runtime, 1)
        await self.replicas.apply(self.image.everything())
        self.controller.subscribe(lambda delta: self._take_options())
        self.controller.subscribe(self.replicas.apply)
        endpoint = {LISTENER: Endpoint("broker-1", 9092)}
        register = RegisterBroker(1, self.runtime.uuid(), endpoint, self.image.cluster_id)
        registered = await self.controller.submit_wait(register)
        await self.controller.submit_wait(BrokerHeartbeat(1, registered.broker_epoch, self.image.offset))
        services = Services(
            config=self.config, runtime=self.runtime, image=self.image, controller=self.controller,
            replicas=self.replicas, groups=SimpleNamespace(), transactions=SimpleNamespace(),  # type: ignore[arg-type]
            purgatory=Purgatory(100),
            producer_ids=SimpleNamespace(), peers=SimpleNamespace(),  # type: ignore[arg-type]
            verification=SimpleNamespace(),  # type: ignore[arg-type]
            creation=AutoCreation(self.controller, self.config, None),
            fetch_sessions=FetchSessions(
                self.config["max.incremental.fetch.session.cache.slots"],
                self.config["max.incremental.fetch.session.partitions"],
                self.runtime.random,
            ),
            cold_sends=ColdSends(self.files),
            preparing=Preparing(self.files, self.runtime, self.config["compression.queued.bytes"]),
            quorum=metadata, cluster_id="cluster-x", node_id=1, has_session=lambda: self.has_session,
        )  # fmt: skip
        self.context = Context(services, LISTENER, "10.0.0.1")

    def _take_options(self) -> None:
        options = self.image.broker_configs
        assert self.config.set_dynamic(options.get("", {}), options.get("1", {})) == []

    async def stop(self) -> None:
        await self.controller.close()
        await self.replicas.close()
        await self.logs.close()
        self.files.close()

    async def ask(self, request: Any, version: int | None = None) -> Any:
        """The answer of the request's handler, in the newest version if none is named."""
        answer = self.handle(request, version)
        if not isinstance(answer, Pending):
            return answer
        done = asyncio.get_running_loop().create_future()
        answer.when_done(done.set_result)
        return await done

    def handle(self, request: Any, version: int | None = None) -> Any:
        """What the request's handler returns."""
        api = type(request).API
        self.context.version = api.max_version if version is None else version
        handler = import_module(f"isthmus.core_broker.server.apis.{MODULES[api.key]}").handle
        return handler(request, self.context)

    async def topic(self, name: str, partitions: int = 1, **options: str) -> bytes:
        """Make a topic; its id. Option names have _ for the dots."""
        configs = {key.replace("_", "."): value for key, value in options.items()}
        result = await self.controller.submit_wait(CreateTopics([new_topic(name, partitions, 1, configs)]))
        assert result.items[0].error_code == 0, result.items[0]
        return result.items[0].topic_id

    async def set_option(self, name: str, value: str) -> None:
        """Set an option of this broker."""
        option = AlterableConfig(name=name, value=value, config_operation=Operation.SET)
        resource = AlterConfigsResource(resource_type=BROKER, resource_name="1", configs=[option])
        result = await self.controller.submit_wait(IncrementalAlterConfigs([resource]))
        assert result.items[0].error_code == 0, result.items[0]

    def fill(self, topic: str, records: int, index: int = 0, **batch: int) -> None:
        """Append one batch of so many records."""
        now = self.runtime.wall_ms()
        data = build_batch([(now, b"k", b"v", ())] * records, **batch)
        self.replicas.get(topic, index).append(data, Origin.CLIENT, now)


def serve(
    work: Callable[[Serving], Coroutine[Any, Any, None]],
    tmp_path: Path,
    runtime: Runtime | None = None,
    files: RealFiles | None = None,
    **options: str,
) -> None:
    """Run `work(serving)` on a broker with these options; names have _ for the dots."""

    async def main() -> None:
        config = {key.replace("_", "."): value for key, value in options.items()}
        serving = Serving(tmp_path, config, runtime or system(), files)
        await serving.start()
        try:
            await work(serving)
        finally:
            await serving.stop()

    asyncio.run(main())
