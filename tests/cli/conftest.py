"""No task of a scripted cluster may outlive its test."""

from tests.no_task_left import no_task_left as no_task_left
