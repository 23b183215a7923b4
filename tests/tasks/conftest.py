"""Fixtures of the tests of tasks."""

from tests.tasks.agent_servers import certificates, unbound

__all__ = ["certificates", "unbound"]
