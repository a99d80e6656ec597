# mypy: ignore-errors
"""What no example of Faust's has, in one app: each agent says what it gets. Runs with both imports (see `host.py`)."""

import asyncio
from datetime import datetime, timedelta

import faust
from faust.serializers import codecs


class Order(faust.Record, serializer="json"):
    account: str
    amount: int
    at: datetime = None


class Reversed(faust.Codec):
    def _loads(self, s):
        return s[::-1]

    def _dumps(self, obj):
        return obj[::-1]


app = faust.App("own", topic_partitions=4, reply_create_topic=True)
codecs.register("reversed", Reversed())

orders = app.topic("orders", key_type=str, value_type=Order)
plain = app.topic("plain")
taken = app.topic("taken", value_type=int)
bytes_topic = app.topic("bytes", value_serializer="raw")
reversed_topic = app.topic("reversed", value_serializer="json|reversed")
schema_topic = app.topic("schema", schema=faust.Schema(key_type=str, value_type=Order, value_serializer="json"))
headed = app.topic("headed", value_type=str)
asked = app.topic("asked", value_type=Order)
through_topic = app.topic("through", value_type=int)
echo_topic = app.topic("echo", value_type=int)
echoed_topic = app.topic("echoed", value_type=int)
sunk_topic = app.topic("sunk", value_type=int)
sink_topic = app.topic("sink", value_type=int)
windowed_topic = app.topic("windowed", key_type=str, value_type=Order)
channel = app.channel()

totals = app.Table("totals", default=int)
by_hand = app.Table("by_hand", default=list)
tumbling = app.Table("tumbling", default=int).tumbling(10, expires=timedelta(hours=1))
hopping = app.Table("hopping", default=int).hopping(10, 5, expires=timedelta(hours=1))
by_field = app.Table("by_field", default=int).tumbling(60).relative_to_field(Order.at)
members = app.SetTable("members", value_type=str)


@app.agent(orders)
async def each_order(stream):
    async for event in stream.events():
        print("event", event.key, event.value.amount, event.value.account, type(event.message.key).__name__)
        totals[event.key] += event.value.amount
        by_hand[event.key] = [*by_hand[event.key], event.value.amount]
        if event.value.amount == 3:
            del totals[event.key]
        members[event.value.account].add(event.key)


@app.agent(orders, name="items")
async def each_item(stream):
    async for key, order in stream.items():
        print("item", key, order.amount)


@app.agent(plain)
async def numbered(stream):
    async for number, value in stream.enumerate(10):
        print("numbered", number, value, type(value).__name__)


@app.agent(taken)
async def taking(stream):
    async for values in stream.take(3, within=60):
        print("taken", values)


@app.agent(bytes_topic)
async def raw(stream):
    async for value in stream:
        print("raw", value)


@app.agent(reversed_topic)
async def reversing(stream):
    async for value in stream:
        print("reversed", value)


@app.agent(schema_topic)
async def with_schema(stream):
    async for event in stream.events():
        print("schema", event.key, event.value)


@app.agent(headed)
async def heading(stream):
    async for event in stream.events():
        print("headed", event.value, dict(event.headers), event.message.timestamp)


@app.agent(asked)
async def answer(stream):
    async for order in stream:
        yield Order(order.account, order.amount * 2)


@app.agent(through_topic)
async def passing(stream):
    async for value in stream.through("own-through"):
        print("through", value)


@app.agent(echo_topic)
async def echoing(stream):
    async for value in stream.echo(echoed_topic):
        print("echo", value)


@app.agent(echoed_topic)
async def echoed(stream):
    async for value in stream:
        print("echoed", value)


def said(value):
    print("sink function", value)


async def said_async(value):
    print("sink async", value)


@app.agent(sink_topic)
async def sunk(stream):
    async for value in stream:
        print("sunk", value)


@app.agent(sunk_topic, sink=[sink_topic, said, said_async])
async def sinking(stream):
    async for value in stream.filter(lambda value: value % 2):
        yield value * 10


@app.agent(windowed_topic, concurrency=1)
async def in_windows(stream):
    async for event in stream.events():
        tumbling["n"] += event.value.amount
        hopping["n"] += 1
        by_field["n"] += 1
        value, hop = tumbling["n"], hopping["n"]
        print("window", event.value.amount, value.current(), value.delta(10), hop.current(), hop.delta(10))
        print("window of", value.now() >= 0, by_field["n"].current())


@app.agent(channel)
async def in_channel(stream):
    async for value in stream:
        print("channel", value)


@app.agent(orders, name="grouped")
async def grouped(stream):
    async for order in stream.group_by(Order.account):
        print("grouped", order.account, order.amount)


@app.agent(taken, concurrency=3, name="several")
async def several(stream):
    async for value in stream:
        await asyncio.sleep(0.01)
        print("several", value)


async def send():
    for number in range(1, 7):
        await orders.send(key=f"k{number % 3}", value=Order("ab"[number % 2], number))
    for value in (None, 1, "x", [1, {"a": 2}], 1.5, True):
        if value is not None:
            await plain.send(key="k", value=value, partition=0)
    for number in range(7):
        await taken.send(value=number, partition=0)
    await bytes_topic.send(value=b"\x00\xff")
    await reversed_topic.send(value={"a": [1, 2]})
    await schema_topic.send(key="s", value=Order("a", 1))
    await headed.send(value="h", headers={"a": b"1", "b": b""}, timestamp=1_700_000_000.5)
    await plain.send(key="k", value=b'{"z": 1}', value_serializer="raw", partition=0)
    for number in range(3):
        await through_topic.send(value=number)
        await echo_topic.send(value=number)
        await sunk_topic.send(value=number)
        await channel.send(value=number)


async def windows(base):
    for number in range(12):
        at = datetime.fromtimestamp(base + number * 30)
        await windowed_topic.send(key="k", value=Order("a", number, at), timestamp=base + number * 2, partition=0)


async def asking():
    print("asked", await answer.ask(Order("a", 4)))
    print("joined", await answer.join([Order("a", number) for number in range(3)]))
    print("mapped", sorted([each.amount async for each in answer.map([Order("b", 1), Order("b", 2)])]))
    await answer.cast(Order("c", 1))
