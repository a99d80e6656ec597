"""What a worker shows of itself: for its pages, and for Prometheus."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

from ...client import TopicPartition
from ..api.app import App
from ..engine.event import NO_WATERMARK
from ..engine.task import TaskId
from .task_run import TaskRun
from .worker import StreamWorker

STARTING, RESTORING, RUNNING, FAILED, PAGES = "starting", "restoring", "running", "failed", "pages only"


def state(worker: StreamWorker | None) -> str:
    """In one word."""
    if worker is None:
        return PAGES
    if worker.failed:
        return FAILED
    if worker.is_rebalancing:
        return RESTORING if worker.restoring or worker.reading else STARTING
    return RUNNING


def why_not_ready(worker: StreamWorker | None) -> str:
    """Empty if it works."""
    now = state(worker)
    if worker is None or now == RUNNING:
        return ""
    if now == FAILED:
        return "; ".join(f"task {id}: {failed.problem}" for id, failed in sorted(worker.failed.items()))
    if now == RESTORING:
        said = [_restoring(id, worker.restored_percent(id)) for id in worker.restoring]
        restores = [f"restores {', '.join(said)}"] if said else []
        reads = [f"reads global tables {', '.join(worker.reading)}"] if worker.reading else []
        return "; ".join(restores + reads)
    return "waits for its group"


def _restoring(id: TaskId, percent: int | None) -> str:
    return str(id) if percent is None else f"{id} ({percent} %)"


def shown(app: App, worker: StreamWorker | None) -> dict[str, Any]:
    """All of it, for JSON."""
    conf = app.conf
    found: dict[str, Any] = {
        "app": app.id,
        "state": state(worker),
        "problem": why_not_ready(worker),
        "url": conf.canonical_url,
        "guarantee": conf.processing_guarantee,
        "commit_interval_s": conf.broker_commit_interval,
        "store": conf.store,
        "is_leader": app.is_leader(),
        "agents": [
            {
                "name": each.name,
                "topics": list(each.topic.names) if each.topic is not None else [],
                "help": (each.function.__doc__ or "").strip(),
            }
            for each in app.agents
        ],
        "pages": sorted(app.web.views),
    }
    if worker is None:
        nothing: dict[str, Any] = {"tasks": [], "datacenters": [], "tables": [], "copies": [], "global_tables": []}
        return {**found, **nothing, "processed_total": 0, "left_out_total": 0}
    return {
        **found,
        "worker": worker.name,
        "processed_total": worker.processed_total,
        "left_out_total": worker.left_out_total,
        "tasks": list(_tasks(worker)),
        "datacenters": [
            {"datacenter": name, "tasks": known.tasks, "of_tasks": known.of, **known.standing._asdict()}
            for name, known in worker.datacenters.known.items()
        ],
        "tables": list(tables(app, worker)),
        "copies": [
            {"task": str(id), "lag": lag, "age_s": _age_s(worker.copies.whole_at(id))}
            for id, lag in sorted(worker.copies.lags().items())
        ],
        "global_tables": [
            {"table": name, "rows": len(store.rows), "age_s": _age_s(worker.global_table_whole_at(name))}
            for name, store in sorted(app.global_stores.items())
        ],
    }


def _tasks(worker: StreamWorker) -> Iterator[dict[str, Any]]:
    progress = worker.consumer.progress()
    for id in sorted({*worker.running, *worker.restoring, *worker.failed}):
        task = worker.running[id].task if id in worker.running else None
        inputs = []
        for topic in worker.layout.topology.subtopologies[id.subtopology].topics:
            tp = TopicPartition(topic, id.partition)
            done = task.positions.get(topic) if task is not None else None
            end = progress[tp].end if tp in progress else -1
            inputs.append(
                {
                    "topic": topic,
                    "partition": id.partition,
                    "position": done.offset if done is not None else None,
                    "end": end if end >= 0 else None,
                    "lag": max(0, end - done.offset) if done is not None and end >= 0 else None,
                }
            )
        failed = worker.failed.get(id)
        yield {
            "task": str(id),
            "state": FAILED if failed is not None else RUNNING if task is not None else RESTORING,
            "problem": str(failed.problem) if failed is not None else "",
            "restored_percent": worker.restored_percent(id),
            "watermark_ms": _watermark_ms(worker.running[id]) if task is not None else None,
            "checkpoint": task.checkpoint_number if task is not None else None,
            "inputs": inputs,
            "rows": {name: len(store.rows) for name, store in task.stores.items()} if task is not None else {},
        }


def _age_s(whole_at: float | None) -> float | None:
    """Seconds since rows were all that was committed; None: they never were."""
    return None if whole_at is None else round(asyncio.get_running_loop().time() - whole_at, 3)


def _watermark_ms(run: TaskRun) -> int | None:
    """The least of its pipelines' watermarks; None without one."""
    known = [each.watermark_ms for chained in run.chained for each in chained.chain.clocks.each]
    return min((each for each in known if each != NO_WATERMARK), default=None)


def tables(app: App, worker: StreamWorker | None) -> Iterator[dict[str, Any]]:
    """The app's tables, and those of its pipelines' steps, with the number of rows here."""
    for name, spec in sorted(app.all_tables().items()):
        stores = worker.stores(name) if worker is not None else []
        yield {
            "name": name,
            "help": spec.help,
            "store": spec.store,
            "changelog": spec.source or app.changelog_topic(name),
            "is_global": spec.is_global,
            "tasks_here": len(stores),
            "rows_here": sum(len(store.rows) for store in stores),
        }


# --- Prometheus -------------------------------------------------------------------------------------

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
METRICS = {
    "isthmus_streams_ready": ("gauge", "1 if all tasks of the worker run."),
    "isthmus_streams_is_leader": ("gauge", "1 if the worker is the leader of its app."),
    "isthmus_streams_processed_total": ("counter", "Records that agents have processed."),
    "isthmus_streams_left_out_total": ("counter", "Records that were left out because of errors."),
    "isthmus_streams_keys_seen_total": ("counter", "Keys of an input that were looked at: are they where they belong?"),
    "isthmus_streams_keys_elsewhere_total": ("counter", "Those that were not in the partition that the rule gives."),
    "isthmus_streams_tasks": ("gauge", "Tasks of the worker, by state."),
    "isthmus_streams_lag": ("gauge", "Offsets between a task and the end of its input partition."),
    "isthmus_streams_position": ("gauge", "The next offset that a task processes."),
    "isthmus_streams_watermark_seconds": ("gauge", "Event time up to which a task's pipelines are, since the epoch."),
    "isthmus_streams_datacenter_complete_seconds": (
        "gauge",
        "Up to when a datacenter's mirror has brought everything.",
    ),
    "isthmus_streams_datacenter_tasks": ("gauge", "Tasks by how they stand with a datacenter, the worst of all."),
    "isthmus_streams_checkpoint": ("gauge", "The number of a task's last checkpoint."),
    "isthmus_streams_table_rows": ("gauge", "Rows of a table in one task."),
    "isthmus_streams_copy_lag": ("gauge", "Rows that a copy of another worker's task is behind."),
    "isthmus_streams_copy_age_seconds": ("gauge", "Since a copy had all that was committed."),
    "isthmus_streams_global_table_rows": ("gauge", "Rows of a global table."),
    "isthmus_streams_global_table_age_seconds": ("gauge", "Since a global table had all that was committed."),
}


def metrics(app: App, worker: StreamWorker | None) -> str:
    """In Prometheus' text format 0.0.4."""
    now = shown(app, worker)
    samples: dict[str, list[tuple[dict[str, Any], float]]] = {name: [] for name in METRICS}
    samples["isthmus_streams_ready"].append(({}, int(not now["problem"])))
    samples["isthmus_streams_is_leader"].append(({}, int(now["is_leader"])))
    for name in ("processed_total", "left_out_total"):
        samples[f"isthmus_streams_{name}"].append(({}, now[name]))
    for topic, places in worker.places.items() if worker is not None else ():
        samples["isthmus_streams_keys_seen_total"].append(({"topic": topic}, places.seen))
        samples["isthmus_streams_keys_elsewhere_total"].append(({"topic": topic}, places.elsewhere))
    for kind in (RUNNING, RESTORING, FAILED):
        count = sum(each["state"] == kind for each in now["tasks"])
        samples["isthmus_streams_tasks"].append(({"state": kind}, count))
    for task in now["tasks"]:
        if task["checkpoint"] is not None:
            samples["isthmus_streams_checkpoint"].append(({"task": task["task"]}, task["checkpoint"]))
        if task["watermark_ms"] is not None:
            at_s = task["watermark_ms"] / 1000
            samples["isthmus_streams_watermark_seconds"].append(({"task": task["task"]}, at_s))
        for each in task["inputs"]:
            labels = {"task": task["task"], "topic": each["topic"], "partition": each["partition"]}
            for what in ("lag", "position"):
                if each[what] is not None:
                    samples[f"isthmus_streams_{what}"].append((labels, each[what]))
        for table, rows in task["rows"].items():
            samples["isthmus_streams_table_rows"].append(({"task": task["task"], "table": table}, rows))
    for each in now["datacenters"]:
        labels = {"datacenter": each["datacenter"]}
        samples["isthmus_streams_datacenter_tasks"].append(({**labels, "state": each["state"]}, each["tasks"]))
        if each["complete_ms"] >= 0:
            at_s = each["complete_ms"] / 1000
            samples["isthmus_streams_datacenter_complete_seconds"].append((labels, at_s))
    for copy in now["copies"]:
        samples["isthmus_streams_copy_lag"].append(({"task": copy["task"]}, copy["lag"]))
        if copy["age_s"] is not None:
            samples["isthmus_streams_copy_age_seconds"].append(({"task": copy["task"]}, copy["age_s"]))
    for each in now["global_tables"]:
        samples["isthmus_streams_global_table_rows"].append(({"table": each["table"]}, each["rows"]))
        if each["age_s"] is not None:
            samples["isthmus_streams_global_table_age_seconds"].append(({"table": each["table"]}, each["age_s"]))
    lines = []
    for name, (kind, about) in METRICS.items():
        if samples[name]:
            lines += [f"# HELP {name} {about}", f"# TYPE {name} {kind}"]
            lines += [f"{name}{_labels({'app': app.id, **labels})} {value}" for labels, value in samples[name]]
    return "\n".join(lines) + "\n"


def _labels(of: dict[str, Any]) -> str:
    escaped = {
        name: str(value).replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n") for name, value in of.items()
    }
    return "{" + ",".join(f'{name}="{value}"' for name, value in escaped.items()) + "}"
