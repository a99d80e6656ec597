"""What can go wrong when something is started for a test; each message names the thing and the way out."""

from __future__ import annotations

from ..deploy.errors import DeployError


class IsthmusTestingError(DeployError):
    """A broker or topology of a test could not be started, found, broken or mended."""
