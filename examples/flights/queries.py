"""What Spark does in the demo: the aggregate's flights into a Delta table, then five questions, no jar involved.

    python -m isthmus.examples.flights.queries --bootstrap HOST:PORT --delta DIR --out FILE.json --go FILE

It may be killed at any moment and started again: the stream goes on from its checkpoint, Delta's log knows which
batches it has, and the answers are written at once or not at all.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import csv
import json
import re
import sys
import time
from pathlib import Path
from typing import Any

from isthmus.client import Admin, Client, TopicPartition
from isthmus.connectors.delta import DeltaWriter
from isthmus.connectors.errors import SessionError
from isthmus.connectors.session import local_session
from isthmus.deploy.whole import write_whole

from .events import PARTITIONS, data_file

FLIGHTS = ("ewr.flights", "jfk.flights", "lga.flights")
WEATHER = ("ewr.weather", "jfk.weather", "lga.weather")
CARRIED = "delays.carried"
BATCHES = 6  # about so many micro-batches bring the flights into the Delta table
ROUTE_FLIGHTS = 100  # a route needs so many departures to be called the worst; fewer where only a prefix was replayed
GO_POLL_S = 0.1

SETTINGS = {"spark.sql.inMemoryColumnarStorage.compressed": "false"}  # 20 MB that live for seconds

FLIGHT = "kind string, row int, origin string, dest string, carrier string, sched_ms bigint, dep_delay int"
HOUR = "origin string, hour_ms bigint, wind_speed double"
PAIR = "row int, origin string, dep_delay int, previous_origin string, previous_dep_delay int"

QUESTIONS = {
    "Flights per origin": """
        SELECT origin,
               count_if(kind = 'scheduled') AS scheduled,
               count_if(kind = 'departed') AS departed,
               count_if(kind = 'cancelled') AS cancelled,
               round(avg(dep_delay), 1) AS `mean delay, min`
        FROM events GROUP BY origin ORDER BY origin""",
    "Mean departure delay per carrier": """
        SELECT coalesce(name, carrier) AS carrier, count(*) AS departed, round(avg(dep_delay), 1) AS `mean delay, min`
        FROM events LEFT JOIN airlines USING (carrier)
        WHERE kind = 'departed' GROUP BY 1 ORDER BY avg(dep_delay) DESC, 1""",
    "Ten worst routes": """
        SELECT concat(origin, ' to ', dest) AS route, count(*) AS departed,
               round(avg(dep_delay), 1) AS `mean delay, min`
        FROM events WHERE kind = 'departed' GROUP BY origin, dest
        HAVING count(*) >= {route_flights} ORDER BY avg(dep_delay) DESC, 1 LIMIT 10""",
    "Delay against wind": """
        WITH wind AS (SELECT origin, hour_ms, avg(wind_speed) AS mph FROM weather GROUP BY origin, hour_ms)
        SELECT CASE WHEN mph IS NULL THEN 'not known'
                    WHEN mph < 5 THEN 'under 5 mph'
                    WHEN mph < 10 THEN '5 to 10 mph'
                    WHEN mph < 15 THEN '10 to 15 mph'
                    WHEN mph < 20 THEN '15 to 20 mph'
                    WHEN mph < 25 THEN '20 to 25 mph'
                    ELSE '25 mph and more' END AS wind,
               count(*) AS departed, round(avg(dep_delay), 1) AS `mean delay, min`
        FROM events LEFT JOIN wind
          ON events.origin = wind.origin AND wind.hour_ms = sched_ms - sched_ms % 3600000
        WHERE kind = 'departed' GROUP BY 1 ORDER BY min(mph) NULLS LAST""",
    "Delay carried between airports": """
        SELECT previous_origin AS `late from`, origin AS `then late from`, count(*) AS times,
               round(avg(previous_dep_delay), 1) AS `mean first delay, min`,
               round(avg(dep_delay), 1) AS `mean second delay, min`
        FROM carried GROUP BY 1, 2 ORDER BY times DESC, 1, 2""",
}


def say(what: str) -> None:
    print(what, flush=True)


async def records_in(bootstrap: str, topics: tuple[str, ...]) -> int:
    """How many records there are."""
    client = Client(bootstrap, client_id="flights-queries")
    await client.start()
    try:
        await client.refresh_metadata(topics)
        partitions = [TopicPartition(topic, p) for topic in topics for p in client.partitions(topic)]
        ends = await Admin(client).list_offsets(dict.fromkeys(partitions, "latest"))
        return sum(offset for offset, *_ in ends.values())
    finally:
        await client.close()


class Queries:
    """The questions, asked of one cluster by one session."""

    def __init__(self, spark: Any, bootstrap: str) -> None:
        self.spark = spark
        self.bootstrap = bootstrap

    # --- Into Delta ---------------------------------------------------------------------------------

    def fill(self, delta: Path) -> None:
        """Everything that is in the topics now, each record once, in micro-batches."""
        records = asyncio.run(records_in(self.bootstrap, FLIGHTS))
        stream = (
            self.spark.readStream.format("isthmus")
            .option("kafka.bootstrap.servers", self.bootstrap)
            .option("subscribe", ",".join(FLIGHTS))
            .option("startingOffsets", "earliest")
            .option("maxOffsetsPerTrigger", records // BATCHES + PARTITIONS * len(FLIGHTS))
            .load()
        )
        writer = DeltaWriter(delta, "flights")
        say(f"rows {writer.rows()}")

        def write(batch: Any, batch_id: int) -> None:
            writer(batch, batch_id)
            say(f"rows {writer.rows()}")

        query = (
            stream.writeStream.foreachBatch(write)
            .option("checkpointLocation", str(delta.with_name(f"{delta.name}-checkpoint")))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()
        say(f"spark: {writer.rows():,} events are in the Delta table {delta}")

    # --- Questions ----------------------------------------------------------------------------------

    def topics(self, *names: str) -> Any:
        """A DataFrame of all there is in the topics."""
        return (
            self.spark.read.format("isthmus")
            .option("kafka.bootstrap.servers", self.bootstrap)
            .option("subscribe", ",".join(names))
            .load()
        )

    def views(self) -> None:
        """The tables that the questions name. Each topic is read once: what was decoded is kept."""
        decoded(self.topics(*FLIGHTS), FLIGHT).cache().createOrReplaceTempView("events")
        decoded(self.topics(*WEATHER), HOUR).createOrReplaceTempView("weather")
        self.topics(CARRIED).createOrReplaceTempView("carried_log")  # its key is the flight: the last word on it holds
        last = self.spark.sql("SELECT max_by(value, offset) AS value FROM carried_log GROUP BY key")
        decoded(last.where("value IS NOT NULL"), PAIR).createOrReplaceTempView("carried")
        with data_file("airlines.csv").open("r") as file:
            airlines = [(line["carrier"], line["name"]) for line in csv.DictReader(file)]
        self.spark.createDataFrame(airlines, "carrier string, name string").createOrReplaceTempView("airlines")

    def answers(self) -> list[dict[str, Any]]:
        """Each question with its columns and rows."""
        self.views()
        found = []
        departed = self.spark.sql("SELECT count(*) FROM events WHERE kind = 'departed'").first()[0]
        routes = {"route_flights": max(1, min(ROUTE_FLIGHTS, departed // 1000))}
        for title, question in QUESTIONS.items():
            frame = self.spark.sql(question.format(**routes))
            found.append({"title": title, "columns": frame.columns, "rows": [list(row) for row in frame.collect()]})
            say(f"spark: {title.lower()}: {len(found[-1]['rows'])} rows")
        self.spark.catalog.clearCache()
        return found


def decoded(frame: Any, schema: str) -> Any:
    """The fields of JSON values."""
    return frame.selectExpr(f"from_json(CAST(value AS string), '{schema}') AS body").select("body.*")


def shortly(error: Exception) -> str:
    """What went wrong, without Java's and Python's way there."""
    causes = re.findall(r"isthmus\.\w+\.errors\.\w+: (.*)", str(error))
    return causes[-1] if causes else str(error).strip().split("\n", 1)[0]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--bootstrap", required=True, help="HOST:PORT of the aggregate")
    parser.add_argument("--delta", type=Path, required=True, help="the Delta table; its checkpoint is put beside it")
    parser.add_argument("--out", type=Path, required=True, help="the answers, as JSON")
    parser.add_argument("--go", type=Path, help="wait until this file is there")
    options = parser.parse_args()
    delta = options.delta.resolve()
    began = time.monotonic()
    try:
        spark = local_session("flights", delta.with_name("spark"), brief=True, settings=SETTINGS)
    except SessionError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    try:
        say(f"ready Spark {spark.version} after {time.monotonic() - began:.1f} s")
        queries = Queries(spark, options.bootstrap)
        with contextlib.suppress(Exception):  # nothing is lost but time
            queries.topics(CARRIED).count()  # starts the Python workers
        while options.go and not options.go.exists():
            time.sleep(GO_POLL_S)
        began = time.monotonic()
        queries.fill(delta)
        write_whole(options.out, json.dumps(queries.answers()))
        say(f"spark: done in {time.monotonic() - began:.1f} s")
    except Exception as error:
        print(f"error: Spark: {shortly(error)}", file=sys.stderr)
        return 1
    finally:
        spark.stop()
    return 0


if __name__ == "__main__":
    sys.exit(main())
