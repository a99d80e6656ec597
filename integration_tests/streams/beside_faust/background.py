# mypy: ignore-errors
"""What a worker runs beside its agents, as Faust's users write it: `python background.py worker`. `/seen` says what has
run, in the order in which it did first; the file `ended` what has at the end."""

import asyncio
import os
from pathlib import Path
from zoneinfo import ZoneInfo

import faust

NAME = os.environ["APP_NAME"]
app = faust.App(NAME, broker=os.environ["APP_BROKER"], topic_partitions=4, store="memory://")
seen: dict[str, int] = {}


def note(name):
    seen[name] = seen.get(name, 0) + 1


def end(what):
    with Path("ended").open("a") as file:
        print(what, file=file)


# --- Signals ----------------------------------------------------------------------------------------


@app.on_before_configured.connect
def before_configured(app, **kwargs):
    note("before configured")


@app.on_configured.connect
def configured(app, conf, **kwargs):
    note(f"configured {conf.id.startswith('background-')}")


@app.on_after_configured.connect
def after_configured(app, **kwargs):
    note("after configured")


@app.on_worker_init.connect
def worker_init(app, **kwargs):
    note("worker init")


@app.on_partitions_assigned.connect
async def assigned(sender, assigned, **kwargs):
    if {tp.partition for tp in assigned if tp.topic.endswith(".words")} == {0, 1, 2, 3}:
        note("assigned")


@app.on_rebalance_complete.connect
async def complete(sender, **kwargs):
    note("rebalance complete")


@app.on_before_shutdown.connect
async def before_shutdown(sender, **kwargs):
    end("before shutdown")


# --- An agent, so that there is a leader ------------------------------------------------------------

words = app.topic(f"{NAME}.words", value_type=str)
counts = app.Table("counts", default=int, partitions=4)


@app.agent(words)
async def count(stream):
    async for word in stream:
        counts[word] += 1


# --- Tasks, timers, crontabs ------------------------------------------------------------------------


@app.task
async def plain_task():
    note("task")


@app.task()
async def task_of_the_app(given):
    note(f"task of the app {given is app}")


@app.task(on_leader=True)
async def task_on_leader():
    note("task on leader")


@app.task
async def ends_with_the_worker():
    note("long task")
    try:
        await app.sleep(1000)
        note("woken")
    except asyncio.CancelledError:
        end("task cancelled")
        raise
    end(f"task woken {app.should_stop}")


@app.timer(interval=0.1)
async def timer():
    note("timer")


@app.timer(0.1, on_leader=True)
async def timer_on_leader(given):
    note(f"timer on leader {given is app} {app.is_leader()}")


@app.crontab("* * * * * *")
async def crontab():
    note("crontab")


@app.crontab("* * * * * */2", timezone=ZoneInfo("Asia/Kolkata"), on_leader=True)
async def crontab_on_leader():
    note("crontab on leader")


@app.crontab("0 0 1 1 *")
async def crontab_for_later():
    note("too early")


# --- Services ---------------------------------------------------------------------------------------


@app.service
class Prices(faust.Service):
    async def on_start(self):
        note("service start")

    async def on_started(self):
        note("service started")

    async def on_stop(self):
        end(f"service stop {self.should_stop}")

    @faust.Service.task
    async def own_task(self):
        while not self.should_stop:
            note("service task")
            await self.sleep(0.1)

    @faust.Service.timer(0.1)
    async def own_timer(self):
        note("service timer")


@app.page("/seen")
async def what_was_seen(self, request):
    return self.json({"seen": list(seen), "several": [name for name, times in seen.items() if times > 1]})


if __name__ == "__main__":
    app.main()
