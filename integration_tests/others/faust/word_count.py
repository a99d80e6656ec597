"""The shape of faust's example word_count: an agent that sends words to another by their key, and a table of counts."""

import os

import faust

app = faust.App("words", broker=os.environ["BROKER"], topic_partitions=4, version=1)
posts = app.topic("posts", value_type=bytes, value_serializer="raw")
words = app.topic("each-word", key_type=str, value_type=str, internal=True)
counts = app.Table("counts", default=int)


@app.agent(posts)
async def split(stream):
    async for post in stream:
        for word in post.decode().split():
            await count.send(key=word, value=word)


@app.agent(words)
async def count(stream):
    async for word in stream:
        counts[word] += 1
