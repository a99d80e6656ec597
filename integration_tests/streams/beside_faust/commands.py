# mypy: ignore-errors
"""Commands of an app, as Faust's users write them: `python commands.py say hello`."""

import os
import sys

import faust
from faust.cli import AppCommand, argument, option

NAME = os.environ["APP_NAME"]
app = faust.App(NAME, broker=os.environ["APP_BROKER"], store="memory://")
words = app.topic(f"{NAME}.words", value_type=str)


class Point(faust.Record, serializer="json", namespace="commands.Point"):
    """A place."""

    x: int
    y: int = 0


@app.agent(words, name="reader")
async def read(stream):
    """Reads."""
    async for word in stream:
        print(word)


counts = app.Table("counts", default=int, help="How often.")


@app.command()
async def bare():
    """Has no arguments."""
    print("bare")


@app.command()
async def with_self(self):
    """Has itself."""
    self.say("said")
    self.carp("carped")
    print(self.app is app, isinstance(self, AppCommand), self.prog_name)
    print(self.debug, self.quiet, self.json, self.workdir, self.kwargs)
    print(self.dumps({"a": [1, None, "b"]}), file=self.stdout)


@app.command(
    argument("word"),
    argument("others", nargs=-1),
    option("--times", "-t", type=int, default=1, help="How often."),
    option("--loud/--quiet", default=False),
    option("--mood", type=str, required=True),
)
async def say(self, word: str, others, times: int, loud: bool, mood: str):
    """Says a word.

    More than once.
    """
    for _ in range(times):
        self.say(f"{word.upper() if loud else word} {list(others)} {mood}")


@app.command()
async def tidy_cmd(self):
    self.say("tidy")


class Counter(AppCommand):
    """Is a class."""

    options = [option("--count", type=int, default=3)]

    async def run(self, count: int) -> None:
        self.say(f"counted {count}")


class Polite(AppCommand):
    abstract = True

    def greet(self, whom):
        self.say(f"Dear {whom}")


@app.command(option("--whom", default="all"), base=Polite)
async def based(self, whom):
    self.greet(whom)
    print(self.kwargs)


@app.command()
async def tabulated(self):
    self.say(self.tabulate([["a", "1"], ["b", "2"]], headers=["word", "count"], title="Words"))


@app.command(argument("how"))
async def fails(self, how):
    if how == "raise":
        raise ValueError("broken")
    if how == "usage":
        raise self.UsageError("not so")
    if how == "exit":
        sys.exit(3)
    if how == "stderr":
        self.say("to stderr", file=sys.stderr)
    return 7


@app.command(argument("word"))
async def post(self, word):
    """Sends a record."""
    sent = await (await words.send(key="k", value=word))
    self.say(f"{sent.topic.rpartition('.')[2]} {sent.partition} {sent.offset}")


@app.command()
async def soon(self):
    """Sends without waiting."""
    words.send_soon(value="soon")


@app.command()
async def reset(self):
    self.say("mine")


if __name__ == "__main__":
    app.main()
