"""Errors of the connectors; the text reaches the user through Spark, so it says all there is to say."""


class ConnectorError(Exception):
    """Root of this package's errors."""


class SourceError(ConnectorError):
    """An option that cannot be, or data that is not there."""


class SessionError(ConnectorError):
    """Spark cannot start on this machine as it is."""


class DeltaError(ConnectorError):
    """A Delta table does not fit the stream that is to be written to it."""
