"""The `isthmus` command: its tree of subcommands, and the one place where errors become a line and an exit code."""

from __future__ import annotations

import os
import sys
from typing import Annotated

import typer

from .. import __version__
from . import (
    clusters,
    compose,
    groups,
    images,
    members,
    mirrors,
    operating,
    output,
    partitions,
    processes,
    records,
    streams,
    tables,
    topics,
    transactions,
)

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    help="Brokers, mirrors, stream processors and Spark over many datacenters, speaking the Kafka protocol.",
)
app.add_typer(topics.app, name="topic", help="List, create, alter, describe and delete topics.")
app.add_typer(partitions.app, name="partition", help="Move partitions to other brokers.")
app.add_typer(clusters.cluster, name="cluster", help="See brokers, leaders and what is not in sync.")
app.add_typer(
    clusters.quorum, name="quorum", help="See the metadata quorum (its status, by options alone) and who votes."
)
topics.app.command("replicas")(partitions.replicas)
clusters.quorum.command()(members.add)
clusters.quorum.command()(members.remove)
clusters.cluster.add_typer(members.features, name="features", help="See and finalize the levels of features.")
clusters.cluster.command("balance")(partitions.balance)
app.add_typer(groups.app, name="group", help="List, describe, reset, alter and delete consumer groups.")
app.add_typer(transactions.app, name="transaction", help="See transactions, and end those that hang.")
app.add_typer(mirrors.app, name="mirror", help="Run mirrors, and see what they do.")
app.add_typer(streams.app, name="streams", help="Stream apps: their topology and lag, and a new start.")
app.add_typer(tables.app, name="table", help="Look at the tables of stream apps.")
app.add_typer(images.app, name="image", help="Build the container image.")
processes.add(app)
operating.add(app)
app.command()(compose.compose)
records.add(app)

EXIT_FAILED = 1
EXIT_INTERRUPTED = 130


def _version(wanted: bool) -> None:
    if wanted:
        from ..protocol import records as batches

        output.out.print(f"isthmus {__version__} (records: {'compiled' if batches.COMPILED else 'plain Python'})")
        raise typer.Exit


@app.callback()
def root(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show version and record loops in use.")
    ] = False,
) -> None:
    pass


def main() -> int:
    """Run the command line; every expected error is one line on stderr, with ISTHMUS_DEBUG=1 a traceback too."""
    from ..client.errors import ClientError
    from ..deploy.errors import DeployError
    from ..protocol.errors import KafkaError

    try:
        app()
    except (DeployError, ClientError, KafkaError, OSError) as error:
        if os.environ.get("ISTHMUS_DEBUG"):
            raise
        if isinstance(error, BrokenPipeError):
            output.stdout_closed()
        else:
            output.fail(str(error))
        return EXIT_FAILED
    except KeyboardInterrupt:
        return EXIT_INTERRUPTED
    except Exception as error:
        if os.environ.get("ISTHMUS_DEBUG"):
            raise
        output.fail(f"{type(error).__name__}: {error} (not foreseen; ISTHMUS_DEBUG=1 shows where)")
        return EXIT_FAILED
    return 0


if __name__ == "__main__":
    sys.exit(main())
