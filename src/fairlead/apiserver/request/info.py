"""RequestInfo: the verb, the resource and the object, from method, path and query."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import unquote

from fairlead.apiserver.failures import bad_request, method_not_allowed, no_such_path

_NAMESPACE_PARTS = frozenset({"status", "finalize"})
_WHOLE = re.compile(r"[+-]?[0-9]+")
_VERBS = {"POST": "create", "PUT": "update", "PATCH": "patch"}


@dataclass(frozen=True, slots=True)
class User:
    name: str
    uid: str = ""
    groups: tuple[str, ...] = ()
    extra: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    @property
    def is_master(self) -> bool:
        return "system:masters" in self.groups


@dataclass(frozen=True, slots=True)
class RequestInfo:
    verb: str
    group: str
    version: str
    plural: str
    namespace: str
    name: str
    subresource: str


def parse_path(method: str, path: str, query: Mapping[str, str]) -> RequestInfo | None:
    """The resource a path names, or None for a path that is about none (/version, /api/v1 itself, …)."""
    # A slash in a name, even an escaped one, or an empty part: no resource.
    parts = unquote(path).strip("/").split("/")
    if parts[0] not in ("api", "apis"):
        return None
    if "" in parts and path.rstrip("/") != "/":
        raise no_such_path()
    start = 2 if parts[0] == "api" else 3
    if len(parts) <= start:
        return None
    group, version = ("", parts[1]) if parts[0] == "api" else (parts[1], parts[2])
    rest = parts[start:]
    watching, old_way = is_true(query, "watch"), False
    if rest[0] == "watch" and len(rest) > 1:  # the older path of a watch
        watching, old_way, rest = True, True, rest[1:]
    namespace = ""
    # /namespaces/x/pods is about pods; /namespaces/x, and its status, about the namespace.
    if rest[0] == "namespaces" and len(rest) > 2 and not (len(rest) == 3 and rest[2] in _NAMESPACE_PARTS):
        namespace, rest = rest[1], rest[2:]
    plural, name = rest[0], rest[1] if len(rest) > 1 else ""
    if plural == "namespaces" and name and not group:
        namespace = name
    subresource = rest[2] if len(rest) > 2 else ""
    verb = _verb(method, name, watching and (old_way or not name))
    return RequestInfo(verb, group, version, plural, namespace, name, subresource)


def _verb(method: str, name: str, watching: bool) -> str:
    if method in ("GET", "HEAD"):
        if watching:
            return "watch"
        return "get" if name else "list"
    if method == "DELETE":
        return "delete" if name else "deletecollection"
    verb = _VERBS.get(method)
    if verb is None:
        raise method_not_allowed()
    return verb


def is_true(query: Mapping[str, str], name: str) -> bool:
    """Whatever is neither `false` nor `0` is true, as Kubernetes reads it; `?watch` alone too."""
    return name in query and query[name].lower() not in ("false", "0")


def is_text(value: str) -> bool:
    """Whether a header was UTF-8: other bytes come as lone surrogates."""
    return value.isascii() or not any("\ud800" <= character <= "\udfff" for character in value)


def whole_number(query: Mapping[str, str], name: str) -> int | None:
    text = query.get(name, "")
    if not text:
        return None
    if _WHOLE.fullmatch(text) is None:
        raise bad_request(f'strconv.ParseInt: parsing "{text}": invalid syntax')
    digits = text.lstrip("+-").lstrip("0")
    number = int(digits or "0") if len(digits) < 20 else 1 << 64
    number = -number if text.startswith("-") else number
    if not -(1 << 63) <= number < 1 << 63:
        raise bad_request(f'strconv.ParseInt: parsing "{text}": value out of range')
    return number


def version_problem(text: str) -> str:
    """Why a text is no resourceVersion; "" where it is one. int() accepts more, and is slow on long texts."""
    if not (text.isascii() and text.isdecimal()):
        return "invalid syntax"
    digits = text.lstrip("0")
    return "value out of range" if len(digits) > 20 or int(digits or "0") >= 1 << 64 else ""


def user_info(user: User) -> dict[str, Any]:
    info: dict[str, Any] = {"username": user.name}
    if user.uid:
        info["uid"] = user.uid
    if user.groups:
        info["groups"] = list(user.groups)
    if user.extra:
        info["extra"] = {key: list(values) for key, values in user.extra.items()}
    return info
