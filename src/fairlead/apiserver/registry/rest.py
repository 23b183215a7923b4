"""Objects created, read, changed and deleted by the rules of a Kubernetes API server.

Between the server (HTTP) and the store (bytes). Every write goes the same way: decode,
default, admit, prepare, validate, record who manages which field, put.
"""

import functools
import secrets
import uuid
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any, TypeVar

import msgspec

from fairlead.apiserver import failures
from fairlead.apiserver.failures import Failure, already_exists, bad_request, conflict, forbidden, not_found
from fairlead.apiserver.fields.patches import spent_patch, strategic_problem
from fairlead.apiserver.heavy import Heavy
from fairlead.apiserver.json_values import JsonObject, copied, put, token
from fairlead.apiserver.registry import apply as applying
from fairlead.apiserver.registry import deletion
from fairlead.apiserver.registry.attributes import Admission, Write
from fairlead.apiserver.registry.decoding import Draft, decoded, without_type
from fairlead.apiserver.registry.deletion import is_over, storage_precondition
from fairlead.apiserver.registry.judging import judge
from fairlead.apiserver.registry.ownership import merged as merged_with
from fairlead.apiserver.registry.ownership import record
from fairlead.apiserver.registry.reader import Reader
from fairlead.apiserver.registry.resources import Resource
from fairlead.apiserver.request.bodies import Sent
from fairlead.apiserver.request.decoding import Undecodable
from fairlead.apiserver.request.info import version_problem
from fairlead.apiserver.request.options import DeleteOptions, Warn
from fairlead.apiserver.schema import gates
from fairlead.apiserver.schema.shape import Notes
from fairlead.apiserver.storage.store import Entry, NamespaceFull, StaleWrite
from fairlead.apiserver.validation import errors as field
from fairlead.cluster.clock import Clock, rfc3339

T = TypeVar("T")

NOTHING = Sent(None)

# For how long a write is tried again while other writes come first.
TRIES_S = 30.0

# Letters and digits that make no words, as Kubernetes draws its suffixes.
_SUFFIX = "bcdfghjklmnpqrstvwxz2456789"
_IMMUTABLE_META = ("uid", "creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds", "generation")


class Overtaken(Failure):
    """The object was written between our read and our write."""

    def __init__(self, failure: Failure) -> None:
        super().__init__(failure.code, failure.reason, failure.message, failure.details)


Permit = Callable[[], None]
"""Raises a Failure where the user may not."""

Observer = Callable[[Resource, JsonObject, bool], None]
"""Called after every write with the resource, the object as stored, and whether it still exists."""


class Rest(Reader):
    def __init__(
        self, reader: Reader, clock: Clock, admission: Admission, observers: Sequence[Observer], heavy: Heavy
    ) -> None:
        super().__init__(reader.store, reader.resources, reader.versions)
        self.clock = clock
        self.admission = admission
        self.heavy = heavy
        self._observers = observers
        for resource in self.resources.stored():
            if resource.strategy.allocates:
                for key, entry in self.store.items(resource.storage_key):
                    resource.strategy.release(key, msgspec.json.decode(entry.body))

    async def current(self, write: Write) -> Entry:
        """The object as it is stored, once it can be read in the version of the write."""
        entry = self.entry(write.resource, write.namespace, write.name)
        await self.ready(write.resource, entry)
        return entry

    # -- creating -------------------------------------------------------------------------------------------

    async def create(self, write: Write, sent: Sent) -> bytes:
        run, size = self.heavy.run, len(sent.raw)
        draft = await run(size, decoded, self.resources, write, sent)
        metadata = self._metadata(write, draft.thing)
        if metadata.get("resourceVersion"):
            raise Failure(500, "", "resourceVersion should not be set on objects to be created")
        _drop_double_owners(metadata, write.warn)
        # managedFields are recorded before admission adds fields of its own.
        await run(size, record, self.versions, write, None, draft.thing, self.clock.now())
        return await self._create(replace(write, name=metadata.get("name", "")), draft)

    async def _create(self, write: Write, draft: Draft, permit: Permit | None = None) -> bytes:
        resource, thing = write.resource, draft.thing
        self._check_namespace(write, write.name or thing["metadata"].get("generateName", ""))
        attempt = write.attempt("CREATE", thing, None, draft.size)
        thing = await self.admission.mutate(attempt)
        metadata = thing["metadata"]
        _drop_double_owners(metadata, write.warn, " after mutating admission happens")
        if not metadata.get("name") and metadata.get("generateName"):
            metadata["name"] = self._generated(write, metadata["generateName"])
            write = replace(write, name=metadata["name"])
        try:
            self._before_create(resource, thing, self.clock.now())
            resource.strategy.allocate(write.key, thing, None)
            await self.heavy.run(_weight(resource, draft), judge, write, thing, None, has_empty=draft.has_empty)
            if permit is not None:
                permit()
            await self.admission.validate(replace(attempt, name=write.name, thing=thing))
            if write.name and self.store.get(resource.storage_key, write.key) is not None:
                raise self._exists(write, thing)
            if write.options.dry_run:
                thing["metadata"].pop("resourceVersion", None)
                return msgspec.json.encode(await self._as_if_kept(resource, thing))
            return await self.put(write, thing, None)
        finally:
            self._release(write)

    def _release(self, write: Write) -> None:
        """What was allocated for an object that was refused or only tried is free again."""
        strategy = write.resource.strategy
        if strategy.allocates:
            strategy.release(write.key, self.find(write.resource.storage_key, write.key))

    def _exists(self, write: Write, thing: JsonObject) -> Failure:
        """The conflict with an object of this name, which may be being deleted."""
        resource, metadata = write.resource, thing["metadata"]
        failure = already_exists(resource.group, resource.plural, metadata["name"])
        if metadata.get("generateName"):
            message = f"{failure.message}, the server was not able to generate a unique name for the object"
            failure = Failure(409, "AlreadyExists", message, failure.details, retry_after_s=1)
        if ((self.find(resource.storage_key, write.key) or {}).get("metadata") or {}).get("deletionTimestamp"):
            failure.message = f"object is being deleted: {failure.message}"
        return failure

    def _before_create(self, resource: Resource, thing: JsonObject, now: datetime) -> None:
        metadata = thing["metadata"]
        metadata.setdefault("name", "")  # where there is none, validation says so
        for unset in ("deletionTimestamp", "deletionGracePeriodSeconds", "selfLink"):
            metadata.pop(unset, None)
        metadata["uid"] = str(uuid.uuid4())
        metadata["creationTimestamp"] = rfc3339(now)
        if resource.strategy.has_generation:
            metadata["generation"] = 1
        if resource.has_status and not resource.strategy.keeps_status_on_create:
            thing.pop("status", None)
            if resource.custom is None:
                thing["status"] = _empty_status(resource)
        gates.drop(resource.group, resource.kind, thing, None)
        resource.strategy.prepare_create(thing)

    def _generated(self, write: Write, prefix: str) -> str:
        resource = write.resource
        for _ in range(8):
            name = prefix[:58] + "".join(secrets.choice(_SUFFIX) for _ in range(5))
            if self.store.get(resource.storage_key, resource.key(write.namespace, name)) is None:
                return name
        raise already_exists(resource.group, resource.plural, prefix)

    def _check_namespace(self, write: Write, name: str) -> None:
        resource, namespace = write.resource, write.namespace
        if not resource.namespaced:
            return
        found = self.find("/namespaces", namespace)
        if found is None:
            raise not_found("", "namespaces", namespace)
        if found["metadata"].get("deletionTimestamp"):
            why = f"unable to create new content in namespace {namespace} because it is being terminated"
            refused = forbidden(resource.group, resource.plural, name, why)
            refused.details["causes"] = [
                {
                    "reason": "NamespaceTerminating",
                    "message": f"namespace {namespace} is being terminated",
                    "field": "metadata.namespace",
                }
            ]
            raise refused

    # -- changing -------------------------------------------------------------------------------------------

    async def update(self, write: Write, sent: Sent) -> bytes:
        return await self.until_written(lambda: self._update(write, sent))

    async def _update(self, write: Write, sent: Sent) -> bytes:
        current = await self.current(write)
        size = max(len(sent.raw), len(current.body))
        draft = await self.heavy.run(size, decoded, self.resources, write, sent, size=size)
        metadata = self._metadata(write, draft.thing)
        check_name(metadata, write.name)
        self._check_version(write, metadata, current, is_guarded=not write.subresource)
        _drop_double_owners(metadata, write.warn)
        return await self._replace(write, current, draft)

    @staticmethod
    def _check_uid(write: Write, metadata: JsonObject, current: Entry) -> None:
        uid = metadata.get("uid")
        if uid and uid != current.uid:
            error = field.invalid("metadata.uid", uid, "field is immutable")
            raise failures.invalid(write.resource.group, write.resource.kind, write.name, error, error)

    @staticmethod
    def _check_version(write: Write, metadata: JsonObject, current: Entry, *, is_guarded: bool) -> None:
        """`is_guarded`: whether a kind that insists on it must say which version is replaced."""
        resource, version = write.resource, metadata.get("resourceVersion")
        if not version and is_guarded and (resource.custom is not None or resource.strategy.guarded):
            error = field.invalid("metadata.resourceVersion", 0, "must be specified for an update")
            raise failures.invalid(resource.group, resource.plural, write.name, error)
        if version and (problem := version_problem(version)):
            raise Failure(500, "", f'strconv.ParseUint: parsing "{version}": {problem}')
        if version and version != "0" and version != str(current.revision):
            raise conflict(resource.group, resource.plural, write.name)

    async def change(
        self, write: Write, changed: Callable[[JsonObject], Any], *, patch: Sent = NOTHING, is_strategic: bool = False
    ) -> bytes:
        """Apply a patch to the current object, again if another write comes in between.

        `changed` applies it; `patch` is what was sent, for complaints about it.
        """
        resource = write.resource

        async def change() -> bytes:
            current = await self.current(write)
            old, size = self.thing(resource, current), max(len(patch.raw), len(current.body))
            spent = functools.partial(spent_patch, resource.schema, old, patch.value) if is_strategic else None

            def patched() -> Draft:
                result = replace(patch, value=changed(copied(old)))
                return decoded(self.resources, write, result, size=size, patched=True, strategic=spent)

            draft = await self.heavy.run(size, patched)
            metadata = self._metadata(write, draft.thing)
            check_name(metadata, write.name)
            self._check_uid(write, metadata, current)
            self._check_version(write, metadata, current, is_guarded=True)
            return await self._replace(write, current, draft)

        return await self.until_written(change)

    async def until_written(self, write: Callable[[], Awaitable[T]]) -> T:
        """Read, change and write again while other writes come first, as a real server does.

        A write that names a resourceVersion is refused when that is not the current one any more.
        """
        ends_at_s = self.clock.elapsed_s() + TRIES_S
        while True:
            try:
                return await write()
            except Overtaken:
                if self.clock.elapsed_s() >= ends_at_s:
                    raise

    async def apply(self, write: Write, sent: Sent, permit_create: Permit) -> tuple[bytes, bool]:
        """Server-side apply; True when that created the object, which `permit_create` may refuse."""

        async def apply() -> tuple[bytes, bool]:
            value = await self.heavy.run(len(sent.raw), copied, sent.value)
            return await self._apply(write, replace(sent, value=value), permit_create)

        return await self.until_written(apply)

    async def _apply(self, write: Write, sent: Sent, permit_create: Permit) -> tuple[bytes, bool]:
        resource, run = write.resource, self.heavy.run
        applied: JsonObject = sent.value
        current = self.store.get(resource.storage_key, write.key)
        size = max(len(sent.raw), 0 if current is None else len(current.body))
        if current is None and write.subresource:
            raise not_found(resource.group, resource.plural, write.name)
        await run(size, applying.check, resource, applied)
        metadata = applied["metadata"] = applied.get("metadata") or {}
        if metadata.get("managedFields"):
            raise bad_request("metadata.managedFields must be nil")
        live = None
        if current is None:
            metadata.pop("resourceVersion", None)
        else:
            await self.ready(resource, current)
            live = self.thing(resource, current)
            self._check_version(write, metadata, current, is_guarded=False)
            self._check_uid(write, metadata, current)
        merged = await run(
            size, merged_with,
            resource.schema, live, applied, write.options, api_version=resource.api_version, now=self.clock.now(),
            subresource=write.subresource,
        )  # fmt: skip
        try:
            draft = await run(size, decoded, self.resources, write, Sent(merged), size=size)
        except Undecodable as failure:
            raise _unconvertible(resource, merged, failure.why) from None
        check_name(self._metadata(write, draft.thing), write.name)
        if current is not None:
            return await self._replace(write, current, draft, recorded=True), False
        if not draft.thing["metadata"].get("managedFields"):
            draft.thing["metadata"].pop("managedFields", None)
        try:
            return await self._create(write, draft, permit_create), True
        except Failure as failure:
            if failure.reason != "AlreadyExists":
                raise
            raise Overtaken(failure) from None

    async def replaced(self, write: Write, current: Entry, thing: JsonObject) -> bytes:
        """Write an object whose managedFields are up to date."""
        return await self._replace(write, current, Draft(thing, len(current.body)), recorded=True)

    async def _replace(self, write: Write, current: Entry, draft: Draft, recorded: bool = False) -> bytes:
        resource, strategy, run = write.resource, write.resource.strategy, self.heavy.run
        old, thing = self.thing(resource, current), draft.thing
        self._keep_identity(write, thing, old)
        now = self.clock.now()
        self._split_status(write, thing, old)
        if not recorded:
            await run(draft.size, record, self.versions, write, old, thing, now)
        attempt = write.attempt("UPDATE", thing, old, draft.size)
        thing = await self.admission.mutate(attempt)
        _drop_double_owners(thing["metadata"], write.warn, " after mutating admission happens")
        gates.drop(resource.group, resource.kind, thing, old)
        try:
            if not write.subresource:
                strategy.prepare_update(thing, old)
                strategy.allocate(write.key, thing, old)
            if strategy.counts_changes and _desired(thing) != _desired(old):
                thing["metadata"]["generation"] = old["metadata"].get("generation", 0) + 1
            await run(_weight(resource, draft), judge, write, thing, old, has_empty=draft.has_empty)
            await self.admission.validate(replace(attempt, thing=thing))
            return await self._write(write, current, thing, old)
        finally:
            self._release(write)

    async def _write(self, write: Write, current: Entry, thing: JsonObject, old: JsonObject) -> bytes:
        """A changed object into the store, or out of it where that was the last finalizer."""
        resource = write.resource
        thing["metadata"]["resourceVersion"] = str(current.revision)
        if write.options.dry_run:
            return msgspec.json.encode(await self._as_if_kept(resource, thing))
        if _is_unchanged(thing, old) and await self._is_kept_so(resource, thing, current):
            await self.store.settled()
            await self.ready(resource, current)
            return self.body(resource, current)
        if is_over(resource, thing):
            body = msgspec.json.encode(thing)
            await self.remove(write, thing, current)
            return body
        return await self.put(write, thing, current.revision)

    def _keep_identity(self, write: Write, thing: JsonObject, old: JsonObject) -> None:
        resource, metadata, before = write.resource, thing["metadata"], old["metadata"]
        if metadata.get("uid") and metadata["uid"] != before["uid"]:
            why = storage_precondition(resource, before, "UID", metadata["uid"], before["uid"])
            raise conflict(resource.group, resource.plural, write.name, why)
        for kept in _IMMUTABLE_META:
            put(metadata, kept, before)
        if "managedFields" not in metadata and "managedFields" in before:
            metadata["managedFields"] = copied(before["managedFields"])

    def _split_status(self, write: Write, thing: JsonObject, old: JsonObject) -> None:
        strategy = write.resource.strategy
        if write.subresource == "status":
            status = thing.get("status")
            metadata = thing["metadata"]
            for name in [name for name in thing if name not in ("apiVersion", "kind", "metadata")]:
                del thing[name]
            thing.update({name: copied(value) for name, value in old.items() if name not in ("metadata", "status")})
            if status is not None:
                thing["status"] = status
            for kept in strategy.status_keeps:
                metadata.pop(kept, None)
                if kept in old["metadata"]:
                    metadata[kept] = copied(old["metadata"][kept])
            strategy.prepare_status(thing, old)
        elif not write.subresource and write.resource.has_status:
            thing.pop("status", None)
            if "status" in old:
                thing["status"] = copied(old["status"])

    # -- deleting -------------------------------------------------------------------------------------------

    async def delete(self, write: Write, delete_options: DeleteOptions) -> tuple[JsonObject, bool]:
        """The object after the delete, and whether it is gone."""
        return await self.until_written(lambda: deletion.delete(self, write, delete_options))

    # -- steps ----------------------------------------------------------------------------------------------

    @staticmethod
    def _metadata(write: Write, thing: JsonObject) -> JsonObject:
        metadata: JsonObject = thing["metadata"]
        if write.resource.namespaced:
            check_namespace(metadata, write.namespace)
            metadata["namespace"] = write.namespace
        else:
            metadata.pop("namespace", None)
        return metadata

    async def put(self, write: Write, thing: JsonObject, expected: int | None) -> bytes:
        resource = write.resource
        about = (resource.group, resource.plural, write.name)
        stored = await self._stored(resource, thing)
        try:
            entry = self.store.put(resource.storage_key, write.key, stored, expected)
        except StaleWrite:
            if expected is None:
                raise already_exists(*about) from None
            raise Overtaken(conflict(*about)) from None
        except NamespaceFull as full:
            raise forbidden(*about, f"{full}: delete what is not needed") from None
        resource.strategy.release(write.key, stored)
        for observe in self._observers:
            observe(resource, stored, True)
        await self.store.settled()
        thing["metadata"]["resourceVersion"] = str(entry.revision)
        await self.ready(resource, entry)
        return self.body(resource, entry)

    async def remove(self, write: Write, thing: JsonObject, current: Entry) -> None:
        resource = write.resource
        stored = await self._stored(resource, thing)
        try:
            self.store.delete(resource.storage_key, write.key, stored, current.revision)
        except StaleWrite:
            raise Overtaken(conflict(resource.group, resource.plural, write.name)) from None
        resource.strategy.release(write.key, None)
        for observe in self._observers:
            observe(resource, stored, False)
        await self.store.settled()

    async def _is_kept_so(self, resource: Resource, thing: JsonObject, current: Entry) -> bool:
        """Whether storing it would change nothing: the storage version may have changed since."""
        if resource.custom is None or self.versions.is_as_kept(resource, current):
            return True
        return _is_unchanged(await self._stored(resource, thing), msgspec.json.decode(current.body))

    async def _as_if_kept(self, resource: Resource, thing: JsonObject) -> JsonObject:
        """What a read would return if this were stored."""
        kind = resource.custom
        if kind is None or len(kind.versions) == 1:
            return thing
        body = msgspec.json.encode(await self._stored(resource, thing))
        return await self.versions.read_unsaved(resource, body)

    async def _stored(self, resource: Resource, thing: JsonObject) -> JsonObject:
        """The bytes to store: kind and version first, so that a list can cut them off."""
        version = resource.api_version
        if resource.custom is not None:
            kept = await self.versions.kept(resource, thing)
        else:
            kept = resource.strategy.to_stored(thing, resource.group)
        if kept is not thing or resource.custom is not None:
            version = kept["apiVersion"]
        return {"kind": resource.kind, "apiVersion": version, **without_type(kept)}


def _weight(resource: Resource, draft: Draft) -> int:
    """The cost of validating it, in bytes: its own, or what the rules of its kind are worth."""
    return draft.size if resource.custom is None else max(draft.size, resource.custom.weight(resource.version))


def _drop_double_owners(metadata: JsonObject, warn: Warn, when: str = "") -> None:
    owners = metadata.get("ownerReferences")
    if not isinstance(owners, list) or len(owners) < 2:
        return
    kept: dict[Any, JsonObject] = {}
    double = [str(owner.get("uid", "")) for owner in owners if kept.setdefault(token(owner), owner) is not owner]
    if double:
        metadata["ownerReferences"] = list(kept.values())
        warn(
            f".metadata.ownerReferences contains duplicate entries{when}; API server dedups owner references in 1.20+, "
            "and may reject such requests as early as 1.24; please fix your requests; duplicate UID(s) observed: "
            f"{', '.join(double)}"
        )


def _empty_status(resource: Resource) -> JsonObject:
    """The status of a new object: the fields that Go never omits."""
    struct = resource.schema.fields["status"].struct
    made: JsonObject = struct.read({}, Notes()) if struct is not None else {}
    return made


def _desired(thing: JsonObject) -> JsonObject:
    """What a generation counts changes of: everything that is neither metadata nor status."""
    return {name: value for name, value in thing.items() if name not in ("metadata", "status", "apiVersion", "kind")}


def _is_unchanged(new: JsonObject, old: JsonObject) -> bool:
    """Equal but for when fields were last touched: nothing to write."""
    if {**new, "metadata": None} != {**old, "metadata": None}:
        return False
    return _untimed(new["metadata"]) == _untimed(old["metadata"])


def _untimed(metadata: JsonObject) -> JsonObject:
    managers = [{**each, "time": None} for each in metadata.get("managedFields") or ()]
    return {**metadata, "managedFields": managers}


def _unconvertible(resource: Resource, merged: JsonObject, plain: str) -> Failure:
    """The failure of an applied object that fits the schema and cannot be decoded into the kind."""
    why = strategic_problem(resource.schema, merged) or plain
    metadata = merged.get("metadata") or {}
    version = f"{resource.group}/{resource.version}, Kind={resource.kind}"
    about = f"({metadata.get('namespace', '')}/{metadata.get('name', '')}; {version})"
    message = f"unable to convert unstructured object to {version}: {why}"
    return Failure(500, "", f"failed to convert new object {about} to proper version: {message}")


def check_namespace(metadata: JsonObject, namespace: str) -> None:
    """A body names the namespace of its request, or none."""
    if metadata.get("namespace") not in (None, "", namespace):
        raise bad_request("the namespace of the provided object does not match the namespace sent on the request")


def check_name(metadata: JsonObject, name: str) -> None:
    name_in_body = metadata.get("name", "")
    if name_in_body != name:
        raise bad_request(
            f"the name of the object ({name_in_body}) does not match the name on the URL ({name})"
            if name_in_body
            else f"the name of the object ({name} based on URL) was undeterminable: name must be provided"
        )
