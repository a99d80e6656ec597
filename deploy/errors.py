"""What can go wrong when a topology is read, started or asked about; each message names the thing and the way out."""


class DeployError(Exception):
    """Base of this room's errors; its text is one or more whole lines for a person."""


class TopologyError(DeployError):
    """The topology file does not say what can be started; every line names file, line and the way out."""


class SupervisorError(DeployError):
    """A supervisor could not be started, found or reached."""


def counted(number: int, what: str) -> str:
    """`1 broker`, `3 brokers`: for messages."""
    return f"{number} {what}" + ("" if number == 1 else "s")
