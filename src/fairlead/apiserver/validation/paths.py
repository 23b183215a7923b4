"""Validation of paths in a pod: that they do not lead out of where they start."""

from fairlead.apiserver.validation import errors as field
from fairlead.apiserver.validation.errors import Causes, Errors


def no_backsteps(text: str, path: str) -> Errors:
    return [field.invalid(path, text, "must not contain '..'")] if ".." in text.split("/") else []


def descending(text: str, path: str) -> Causes:
    if text.startswith("/"):
        yield field.invalid(path, text, "must be a relative path")
    yield from no_backsteps(text, path)


def not_reserved(text: str, path: str) -> Causes:
    """A relative path that does not begin with `..` either: the kubelet reserves those names."""
    yield from descending(text, path)
    if text.startswith("..") and not text.startswith("../"):
        yield field.invalid(path, text, "must not start with '..'")
