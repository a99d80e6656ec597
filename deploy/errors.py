"""What can go wrong when a topology is read, started or asked about; each message names the thing and the way out."""


class DeployError(Exception):
    """Base of this room's errors; its text is one or more whole lines for a person."""


class TopologyError(DeployError):
    """The topology file does not say what can be started; every line names file, line and the way out."""


class SupervisorError(DeployError):
    """A supervisor could not be started, found or reached."""


class NotAllStarted(DeployError):
    """A topology is up, and some of its mirrors or workers are not. failures: a line for each; notes: other lines."""

    def __init__(self, failures: list[str], notes: list[str]) -> None:
        super().__init__("\n".join(failures))
        self.failures = failures
        self.notes = notes


def counted(number: int, what: str) -> str:
    """`1 broker`, `3 brokers`: for messages."""
    return f"{number} {what}" + ("" if number == 1 else "s")
