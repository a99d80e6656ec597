from tests.deploy.conftest import commands, docker

__all__ = ["commands", "docker"]
