"""Validation of paths in a pod: that they do not lead out of where they start."""

from fairlead.apiserver.validation.errors import Errors, invalid


def no_backsteps(text: str, path: str) -> Errors:
    return [invalid(path, text, "must not contain '..'")] if ".." in text.split("/") else []


def descending(text: str, path: str) -> Errors:
    found: Errors = []
    if text.startswith("/"):
        found.append(invalid(path, text, "must be a relative path"))
    return [*found, *no_backsteps(text, path)]


def not_reserved(text: str, path: str) -> Errors:
    """A relative path that does not begin with `..` either: the kubelet reserves those names."""
    found = descending(text, path)
    if text.startswith("..") and not text.startswith("../"):
        found.append(invalid(path, text, "must not start with '..'"))
    return found
