"""Two apps that do the same with what shops order, one a processing guarantee; each order has an id of its own."""

from isthmus.streams import App

INPUTS = ("north.orders", "south.orders")
GROUPS = 11


def make(guarantee: str) -> App:
    """Orders counted by their keys, and by their numbers' remainders, which are other keys; each is an output, too."""
    app = App(
        guarantee,
        processing_guarantee=guarantee,
        broker_commit_interval=0.2,
        broker_session_timeout=6,  # a worker that was killed is out after this, if it is not back before
        topic_partitions=3,
        web_enabled=False,
    )
    orders = app.topic(*INPUTS)
    out = app.topic(f"{guarantee}.out")
    counts = app.Table("counts", default=int)

    @app.agent(orders)
    async def count(stream):
        async for event in stream.events():
            counts[event.key] += 1
            await out.send(key=event.key, value=event.value)

    app.stream(orders).group_by(lambda value: value["n"] % GROUPS, name="remainder").group_by_key().count(name="groups")
    return app


at_least_once = make("at_least_once")
exactly_once = make("exactly_once")
