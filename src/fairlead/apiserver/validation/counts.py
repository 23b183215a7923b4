"""Validation of numbers that a status counts."""

from collections.abc import Sequence

from fairlead.apiserver.validation.errors import (
    Errors,
    Json,
    nonnegative,
)


def counts(status: Json, keys: Sequence[str]) -> Errors:
    return [each for key in keys for each in nonnegative(f"status.{key}", status.get(key, 0))]
