"""The image with Java and PySpark, which the profile `spark` of compose uses. Built for this test: `pytest -m soak`."""

from __future__ import annotations

import pytest
from confluent_kafka import Producer

from integration_tests.containers.containers import INSIDE, BrokerContainer
from isthmus.deploy.engine import SPARK_IMAGE, EngineVersion, docker
from isthmus.deploy.image.build import Choice, build, is_current

RECORDS = 1_000
RUN_TIMEOUT_S = 300.0
QUERY = f"""
from isthmus.connectors.session import local_session
spark = local_session("image", "/tmp/spark")
table = spark.read.format("isthmus").option("kafka.bootstrap.servers", "{INSIDE}").option("subscribe", "numbers").load()
print("sum", table.selectExpr("sum(cast(cast(value as string) as bigint)) as s").collect()[0].s)
"""


@pytest.fixture(scope="module")
def spark_image(docker_engine: EngineVersion) -> str:
    if not is_current(SPARK_IMAGE):
        build(Choice(spark=True), print, lambda line: None)
    return SPARK_IMAGE


@pytest.mark.soak
def test_spark_in_its_image_reads_a_broker_in_another(spark_image: str, broker_container: BrokerContainer) -> None:
    broker = broker_container
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    for number in range(RECORDS):
        producer.produce("numbers", str(number))
    assert producer.flush(60) == 0
    said = docker(
        *("run", "--rm", "--read-only", "--tmpfs", "/tmp:exec", "--env", "HOME=/tmp"),
        *("--network", f"container:{broker.name}", "--entrypoint", "python", spark_image, "-c", QUERY),
        timeout_s=RUN_TIMEOUT_S,
    )
    assert said.splitlines()[-1] == f"sum {sum(range(RECORDS))}"
