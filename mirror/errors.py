"""Errors of the mirror that a person must act on; each names the link or topic and the solution."""


class MirrorError(Exception):
    """The link cannot work as it is configured."""
