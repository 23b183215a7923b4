"""Lists: selectors, pages of one version, and the forms of the answer."""

import base64
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

from fairlead.apiserver.failures import Failure, bad_request, gone, options_invalid
from fairlead.apiserver.registry.resources import Resource
from fairlead.apiserver.registry.rest import Rest
from fairlead.apiserver.request.info import is_true, version_problem, whole_number
from fairlead.apiserver.request.selectors import check_fields, label_selector, matcher, parse_fields
from fairlead.apiserver.schema.shape import ParseError, parse
from fairlead.apiserver.storage.store import Compacted, Entry
from fairlead.apiserver.validation import errors as field
from fairlead.apiserver.validation.errors import Errors

Matches = Callable[[Mapping[str, str], Mapping[str, str]], bool]
_ALWAYS = frozenset({"metadata.name", "metadata.namespace"})


@dataclass(frozen=True, slots=True)
class Page:
    revision: int
    entries: list[Entry]
    next_token: str = ""
    remaining: int | None = None

    def metadata(self) -> dict[str, Any]:
        """The metadata of the list."""
        metadata: dict[str, Any] = {"resourceVersion": str(self.revision)}
        if self.next_token:
            metadata["continue"] = self.next_token
            if self.remaining is not None:
                metadata["remainingItemCount"] = self.remaining
        return metadata


class ContinueToken(msgspec.Struct, frozen=True, rename={"version": "v", "revision": "rv", "start": "start"}):
    version: str
    revision: int
    start: str


def selected(resource: Resource, query: Mapping[str, str]) -> Matches | None:
    """The query's selectors as one predicate; None where there are none."""
    custom = resource.custom.selectable(resource.version) if resource.custom is not None else ()
    known = _ALWAYS | resource.strategy.field_names(resource.group)
    known |= frozenset(path.lstrip(".") for path in custom)
    labels = label_selector(query.get("labelSelector", ""))
    fields = parse_fields(query.get("fieldSelector", ""))
    if not is_true(query, "watch"):
        check_list_options(query)
    check_fields(fields, known, resource.strategy.unknown_field, custom=resource.custom is not None)
    if not is_true(query, "watch"):
        check_list_version(query)
    return matcher(labels, fields)


def page(rest: Rest, resource: Resource, namespace: str, query: Mapping[str, str]) -> Page:
    limit = whole_number(query, "limit") or 0
    whole_number(query, "timeoutSeconds")  # a list is never that slow, but a number it must be
    matches = selected(resource, query)
    if is_true(query, "watch"):
        # The deletion of a collection takes all options of a list, this one too, and lists all the same.
        check_watch_options(query)
        check_list_version(query)
    token = query.get("continue", "")
    version = query.get("resourceVersion", "")
    how = query.get("resourceVersionMatch", "")
    store = rest.store
    revision, start = store.revision, ""
    if token:
        revision, start = _read_token(token, store.revision)
    elif how == "Exact" or (limit and not how and version not in ("", "0")):
        # Pages are of one version: where one is named, of that.
        revision = int(version)
    if not token and version not in ("", "0") and int(version) > store.revision:
        raise too_large(int(version), store.revision)
    if version == "0" and not token:
        limit = 0  # whatever is at hand, all of it
    entries: list[Entry] = []
    last = ""
    remaining = 0
    for key, entry in _items(rest, resource, resource.key_prefix(namespace), revision, start):
        if matches is not None and not matches(entry.labels, rest.fields(resource, entry)):
            continue
        if limit and len(entries) == limit:
            remaining += 1
            if matches is not None:
                break
            continue
        entries.append(entry)
        last = key
    if not remaining:
        return Page(revision, entries)
    next_token = _token(revision, f"{last}\0")
    # Counting what a selector leaves would cost a walk over everything; Kubernetes does not either.
    return Page(revision, entries, next_token, None if matches else remaining)


async def ready(rest: Rest, resource: Resource, namespace: str, query: Mapping[str, str]) -> None:
    """Wait until a page can be cut: a selector may read fields of objects in the version of the request."""
    kind = resource.custom
    if kind is not None and kind.webhook is not None and query.get("fieldSelector"):
        entries = rest.store.items(resource.storage_key, resource.key_prefix(namespace))
        await rest.ready(resource, *(entry for _, entry in entries))


def _items(rest: Rest, resource: Resource, prefix: str, revision: int, start: str) -> Iterator[tuple[str, Entry]]:
    store = rest.store
    if revision == store.revision:
        for key, entry in store.items(resource.storage_key, prefix):
            if key >= start:
                yield key, entry
        return
    try:
        then = store.of_kind(resource.storage_key).at(revision)
    except Compacted:
        if start:
            raise _token_expired(start) from None
        raise gone("The resourceVersion for the provided list is too old.") from None
    for key in sorted(then):
        if key >= start and key.startswith(prefix):
            yield key, then[key]


def check_list_options(query: Mapping[str, str]) -> None:
    version, how = query.get("resourceVersion", ""), query.get("resourceVersionMatch", "")
    path = "resourceVersionMatch"
    errors: Errors = []
    if how and not version:
        errors.append(field.forbidden(path, "resourceVersionMatch is forbidden unless resourceVersion is provided"))
    if how and query.get("continue"):
        errors.append(field.forbidden(path, "resourceVersionMatch is forbidden when continue is provided"))
    errors += field.supported(path, how, ("Exact", "NotOlderThan", ""))
    if how == "Exact" and version == "0":
        errors.append(field.forbidden(path, 'resourceVersionMatch "exact" is forbidden for resourceVersion "0"'))
    if query.get("sendInitialEvents"):
        errors.append(field.forbidden("sendInitialEvents", "sendInitialEvents is forbidden for list"))
    if errors:
        raise options_invalid("ListOptions", *errors)


def check_watch_options(query: Mapping[str, str]) -> None:
    how, initial = query.get("resourceVersionMatch", ""), query.get("sendInitialEvents", "")
    path = "resourceVersionMatch"
    errors: Errors = []
    if initial and how != "NotOlderThan":
        why = "sendInitialEvents requires setting resourceVersionMatch to NotOlderThan"
        errors.append(field.forbidden(path, why))
    if how and not initial:
        why = "resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided"
        errors.append(field.forbidden(path, why))
    if how:
        errors += field.supported(path, how, ("NotOlderThan",))
    if errors:
        raise options_invalid("ListOptions", *errors)


def check_list_version(query: Mapping[str, str]) -> None:
    version = query.get("resourceVersion", "")
    if version and version_problem(version):
        raise bad_request(f"invalid resource version: {not_a_version(version)}")
    if query.get("continue") and version not in ("", "0"):
        raise bad_request("specifying resource version is not allowed when using continue")


def not_a_version(text: str) -> str:
    shown = msgspec.json.encode(text).decode()
    return f"resourceVersion: Invalid value: {shown}: strconv.ParseUint: parsing {shown}: {version_problem(text)}"


ANY_REVISION = -1
"""In a continue token: go on with whatever there is now."""


def _token(revision: int, start: str) -> str:
    packed = msgspec.json.encode(ContinueToken("meta.k8s.io/v1", revision, start))
    return base64.urlsafe_b64encode(packed).rstrip(b"=").decode()


def _token_expired(start: str) -> Failure:
    """With a token to go on from, for those who can do with a list of two versions."""
    expired = gone(
        "The provided continue parameter is too old to display a consistent list result. You can start a new list "
        "without the continue parameter, or use the continue token in this response to retrieve the remainder of the "
        "results. Continuing with the provided token results in an inconsistent list - objects that were created, "
        "modified, or deleted between the time the first chunk was returned and now may show up in the list."
    )
    expired.metadata["continue"] = _token(ANY_REVISION, start)
    return expired


def _read_token(token: str, newest: int) -> tuple[int, str]:
    refused = "invalid continue token: continue key is not valid"
    try:
        packed = base64.b64decode(token + "=" * (-len(token) % 4), altchars=b"-_", validate=True)
        found = msgspec.convert(parse(packed).value, ContinueToken)
    except ParseError as problem:
        raise bad_request(f"{refused}: {problem}") from None
    except msgspec.ValidationError:
        raise bad_request(f"{refused}: server does not recognize this encoded version ") from None
    except ValueError:
        raise bad_request(f"{refused}: illegal base64 data at input byte 0") from None
    if found.version != "meta.k8s.io/v1":
        raise bad_request(f"{refused}: server does not recognize this encoded version {found.version}")
    if found.revision == ANY_REVISION:
        return newest, found.start
    if not 0 < found.revision <= newest:
        raise bad_request(f"{refused}: incorrect encoded start resourceVersion (version meta.k8s.io/v1)")
    return found.revision, found.start


def too_large(version: int, newest: int) -> Failure:
    text = f"Too large resource version: {version}, current: {newest}"
    cause = {"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}
    return Failure(504, "Timeout", text, {"causes": [cause]}, retry_after_s=1)


def list_body(rest: Rest, resource: Resource, found: Page) -> bytes:
    """A list object around the bytes of its items, which are not decoded again."""
    metadata = found.metadata()
    if resource.custom is not None and not found.next_token:
        metadata = {"continue": "", **metadata}
    head = msgspec.json.encode({"kind": resource.list_kind, "apiVersion": resource.api_version, "metadata": metadata})
    if resource.custom is None:
        # Kubernetes leaves apiVersion and kind out of the items of built-in lists; each was stored with both.
        front = msgspec.json.encode({"kind": resource.kind, "apiVersion": resource.api_version})[:-1] + b","
        items = [bare(rest.body(resource, entry), front) for entry in found.entries]
    else:
        items = [rest.body(resource, entry) for entry in found.entries]
    return head[:-1] + b',"items":[' + b",".join(items) + b"]}"


def bare(body: bytes, front: bytes) -> bytes:
    """Cut `{"kind":…,"apiVersion":…,` off the front of an encoded object, where `rest` always puts them."""
    if body.startswith(front):
        return b"{" + body[len(front) :]
    thing = msgspec.json.decode(body)
    return msgspec.json.encode({name: value for name, value in thing.items() if name not in ("kind", "apiVersion")})
