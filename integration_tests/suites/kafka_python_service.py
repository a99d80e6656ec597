"""What kafka-python's integration tests import and its source archive leaves out: put there as `test/service.py`.

With KAFKA_URI set they start no services of their own; a broker that is there already needs no more than a name.
"""


class ExternalService:
    """A broker that somebody else has started, and stops."""

    def __init__(self, host, port):
        self.host = host
        self.port = port


class SpawnedService:
    """Never made where KAFKA_URI is set."""
