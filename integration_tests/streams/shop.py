"""An app with everything beside its agents, run as a script: `python shop.py worker`."""

import asyncio
import os

import isthmus.streams as faust
from isthmus.streams.cli import argument, option

NAME = os.environ.get("APP_NAME", "shop")
app = faust.App(NAME, broker=os.environ["APP_BROKER"], broker_commit_interval=0.2, topic_partitions=4)
orders = app.topic(f"{NAME}.orders", value_serializer="json")
totals = app.Table("totals", default=int, help="Ordered so far, by customer.")
lines: list[str] = []


def say(text: str) -> None:
    print(text, flush=True)


@app.agent(orders)
async def add_up(stream):
    """Add orders up."""
    async for event in stream.events():
        totals[event.key.decode()] += event.value


@app.on_partitions_assigned.connect
async def assigned(sender, assigned, **kwargs):
    say(f"assigned {len(assigned)}")


@app.on_rebalance_complete.connect
async def complete(sender, **kwargs):
    say(f"complete {sender.rebalancing}")


@app.on_started
async def started():
    say("started")


@app.on_before_shutdown.connect
async def before_shutdown(sender, **kwargs):
    await orders.send(key="last", value=1)
    say("shutdown")


@app.task
async def first():
    await orders.send(key="task", value=1)


@app.timer(0.2, on_leader=True)
async def tick():
    await orders.send(key="timer", value=1)


@app.page("/total/{customer}/")
@app.table_route(table=totals, match_info="customer")
async def total(web, request, customer):
    return web.json({customer: totals[customer], "at": app.conf.canonical_url})


@app.command(
    argument("customer"),
    option("--amount", type=int, default=1, help="How much."),
    option("--times", type=int, default=1),
)
async def order(self, customer: str, amount: int, times: int):
    """Order something."""
    sent = await asyncio.gather(*[orders.send(key=customer, value=amount) for _ in range(times)])
    self.say(self.dumps([(await each).partition for each in sent[:1]]))


if __name__ == "__main__":
    app.main()
