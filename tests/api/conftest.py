"""No task of a server under test may outlive its test."""

from tests.no_task_left import no_task_left as no_task_left
