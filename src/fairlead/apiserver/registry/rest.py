"""Objects created, read, changed and deleted by the rules of a Kubernetes API server.

Between the server, which knows HTTP, and the store, which knows bytes. Every write goes the same way: decode,
default, admit, prepare, validate, record who manages which field, put.
"""

import functools
import secrets
import uuid
from collections.abc import Awaitable, Callable, Mapping
from datetime import datetime
from typing import Any, TypeVar

import msgspec

from fairlead.apiserver.failures import (
    Failure,
    already_exists,
    bad_request,
    conflict,
    forbidden,
    invalid,
    not_found,
)
from fairlead.apiserver.fields.patches import spent_patch, strategic_problem
from fairlead.apiserver.heavy import Heavy
from fairlead.apiserver.json_values import copied, go_escaped, token
from fairlead.apiserver.registry import apply as applying
from fairlead.apiserver.registry import deletion
from fairlead.apiserver.registry.attributes import AdmissionAttributes, Admit, JsonObject, with_object
from fairlead.apiserver.registry.decoding import decoded, without_type
from fairlead.apiserver.registry.deletion import is_over, storage_precondition
from fairlead.apiserver.registry.judging import judge
from fairlead.apiserver.registry.ownership import merged as merged_with
from fairlead.apiserver.registry.ownership import record
from fairlead.apiserver.registry.resources import Resource, Resources
from fairlead.apiserver.registry.service_addresses import Addresses, drop_what_the_type_has_not, keep_what_was_given
from fairlead.apiserver.registry.versions import Versions
from fairlead.apiserver.request.decoding import Undecodable
from fairlead.apiserver.request.info import version_problem
from fairlead.apiserver.request.options import DeleteOptions, Options
from fairlead.apiserver.schema import gates
from fairlead.apiserver.schema.shape import (
    Notes,
)
from fairlead.apiserver.storage.store import Entry, StaleWrite, Store
from fairlead.cluster.clock import Clock, rfc3339

T = TypeVar("T")

# For how long a write is tried again that others keep overtaking.
TRIES_S = 30.0

# Letters and digits that make no words, as Kubernetes draws its suffixes.
_SUFFIX = "bcdfghjklmnpqrstvwxz2456789"
_IMMUTABLE_META = ("uid", "creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds", "generation")


class Overtaken(Failure):
    """Somebody else wrote the object between our reading it and our writing it."""

    def __init__(self, failure: Failure) -> None:
        super().__init__(failure.code, failure.reason, failure.message, failure.details)


class Rest:
    def __init__(self, store: Store, resources: Resources, clock: Clock, addresses: Addresses) -> None:
        self.store = store
        self.resources = resources
        self.clock = clock
        self.addresses = addresses
        self.versions = Versions()
        self.heavy = Heavy()
        self.mutating: list[Admit] = []
        self.validating: list[Admit] = []
        self.after_write: list[Callable[[Resource, JsonObject, bool], None]] = []
        """Told of every committed write: the resource, the object as stored, whether it still exists."""

    # -- reading --------------------------------------------------------------------------------------------

    def key(self, resource: Resource, namespace: str, name: str) -> str:
        return f"{namespace}/{name}" if resource.namespaced else name

    def entry(self, resource: Resource, namespace: str, name: str) -> Entry:
        found = self.store.get(resource.storage_key, self.key(resource, namespace, name))
        if found is None:
            raise not_found(resource.group, resource.plural, name)
        return found

    async def ready(self, resource: Resource, *entries: Entry) -> None:
        """Until these can be told in the version the resource speaks: comes before `thing` and `body`."""
        kind = resource.custom
        if kind is None or kind.webhook is None:
            return
        shelf = self.store.shelf(resource.storage_key)
        if self.versions.is_crowded(kind, len(shelf.entries)):
            self.versions.forget(kind, (entry.revision for entry in shelf.entries.values()))
        await self.versions.prepare(resource, entries)

    def thing(self, resource: Resource, entry: Entry) -> JsonObject:
        """The object in the version the resource speaks."""
        if resource.custom is not None:
            return self.versions.told(resource, entry)
        stored: JsonObject = msgspec.json.decode(entry.body)
        stored = resource.strategy.from_stored(stored, resource.group, resource.version)
        if stored.get("apiVersion") != resource.api_version:
            stored["apiVersion"] = resource.api_version
        return stored

    def fields(self, resource: Resource, entry: Entry) -> Mapping[str, str]:
        """What field selectors may ask; of a custom kind in the version that asks."""
        kind = resource.custom
        if kind is None or not kind.selectable(resource.version):
            return entry.fields
        return {**entry.fields, **kind.selected(resource.version, self.thing(resource, entry))}

    def body(self, resource: Resource, entry: Entry) -> bytes:
        """The bytes to answer with; those of the store where the versions agree."""
        if resource.storage_key == "apps/controllerrevisions":
            return go_escaped(entry.body)  # what is in a revision is compared by its bytes
        if self._is_stored_form(resource, entry):
            return entry.body
        return msgspec.json.encode(self.thing(resource, entry))

    def _is_stored_form(self, resource: Resource, entry: Entry) -> bool:
        if resource.custom is not None:
            return self.versions.is_as_kept(resource, entry)
        return resource.strategy.is_stored_form(resource.group)

    def find(self, storage_key: str, key: str) -> JsonObject | None:
        entry = self.store.get(storage_key, key)
        return None if entry is None else msgspec.json.decode(entry.body)

    # -- creating -------------------------------------------------------------------------------------------

    async def create(self, resource: Resource, namespace: str, sent: Any, options: Options) -> bytes:
        run, size = self.heavy.run, options.size
        thing = await run(size, decoded, self.resources, resource, sent, options)
        metadata = self._metadata(resource, namespace, thing)
        if metadata.get("resourceVersion"):
            raise Failure(500, "", "resourceVersion should not be set on objects to be created")
        name = metadata.get("name", "")
        _drop_double_owners(metadata, options)
        # Whose the fields are is settled before admission adds its own.
        await run(size, record, self.versions, resource, None, thing, options, "", self.clock.now())
        return await self._create(resource, namespace, name, thing, options)

    async def _create(
        self, resource: Resource, namespace: str, name: str, thing: JsonObject, options: Options
    ) -> bytes:
        self._check_namespace(resource, namespace, name or thing["metadata"].get("generateName", ""))
        attempt = AdmissionAttributes("CREATE", resource, namespace, name, thing, None, "", options)
        thing = await self.admitted(self.mutating, attempt)
        metadata = thing["metadata"]
        _drop_double_owners(metadata, options, " after mutating admission happens")
        if not metadata.get("name") and metadata.get("generateName"):
            name = metadata["name"] = self._generated(resource, namespace, metadata["generateName"])
        key = self.key(resource, namespace, name)
        is_service = resource.storage_key == "/services"
        try:
            self._before_create(resource, thing, self.clock.now())
            await self.heavy.run(options.size, judge, resource, thing, None, options)
            seen = AdmissionAttributes("CREATE", resource, namespace, name, thing, None, "", options)
            await self.admitted(self.validating, seen)
            if name and self.store.get(resource.storage_key, key) is not None:
                raise self._exists(resource, key, thing)
            if options.dry_run:
                thing["metadata"].pop("resourceVersion", None)
                return msgspec.json.encode(await self._as_if_kept(resource, thing))
            return await self.put(resource, namespace, name, thing, None)
        finally:
            if is_service:
                # What a refused or tried Service was given is free again.
                self.addresses.learn(key, self.find("/services", key) or {})

    def _exists(self, resource: Resource, key: str, thing: JsonObject) -> Failure:
        """That there is one of this name already, and whether it is going."""
        metadata = thing["metadata"]
        failure = already_exists(resource.group, resource.plural, metadata["name"])
        if metadata.get("generateName"):
            told = f"{failure.message}, the server was not able to generate a unique name for the object"
            failure = Failure(409, "AlreadyExists", told, failure.details, retry_after_s=1)
        if ((self.find(resource.storage_key, key) or {}).get("metadata") or {}).get("deletionTimestamp"):
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
        if resource.storage_key == "/services":
            self.addresses.give(self.key(resource, metadata["namespace"], metadata["name"]), thing)
            thing.setdefault("status", {}).setdefault("loadBalancer", {})

    def _generated(self, resource: Resource, namespace: str, prefix: str) -> str:
        for _ in range(8):
            name = prefix[:58] + "".join(secrets.choice(_SUFFIX) for _ in range(5))
            if self.store.get(resource.storage_key, self.key(resource, namespace, name)) is None:
                return name
        raise already_exists(resource.group, resource.plural, prefix)

    def _check_namespace(self, resource: Resource, namespace: str, name: str) -> None:
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

    async def update(
        self, resource: Resource, namespace: str, name: str, sent: Any, options: Options, subresource: str = ""
    ) -> bytes:
        return await self.until_written(
            resource,
            namespace,
            name,
            options,
            lambda: self._update(resource, namespace, name, sent, options, subresource),
        )

    async def _update(
        self, resource: Resource, namespace: str, name: str, sent: Any, options: Options, subresource: str
    ) -> bytes:
        current = self.entry(resource, namespace, name)
        await self.ready(resource, current)
        thing = await self.heavy.run(options.size, decoded, self.resources, resource, sent, options)
        metadata = self._metadata(resource, namespace, thing)
        check_name(metadata, name)
        if not metadata.get("resourceVersion") and not subresource and self._is_guarded(resource):
            raise _unguarded(resource, name)
        self._check_version(resource, metadata, name, current)
        _drop_double_owners(metadata, options)
        return await self._replace(resource, namespace, name, current, thing, options, subresource)

    @staticmethod
    def _is_guarded(resource: Resource) -> bool:
        """Whether an update must say which version it replaces."""
        return resource.custom is not None or resource.strategy.guarded

    @staticmethod
    def _check_uid(resource: Resource, metadata: JsonObject, name: str, current: Entry) -> None:
        uid = metadata.get("uid")
        if uid and uid != current.uid:
            cause = ("FieldValueInvalid", f'Invalid value: "{uid}": field is immutable', "metadata.uid")
            raise invalid(resource.group, resource.kind, name, [cause, cause])

    @staticmethod
    def _check_version(resource: Resource, metadata: JsonObject, name: str, current: Entry) -> None:
        version = metadata.get("resourceVersion")
        if version and (problem := version_problem(version)):
            raise Failure(500, "", f'strconv.ParseUint: parsing "{version}": {problem}')
        if version and version != "0" and version != str(current.revision):
            raise conflict(resource.group, resource.plural, name)

    async def change(
        self,
        resource: Resource,
        namespace: str,
        name: str,
        changed: Callable[[JsonObject], Any],
        options: Options,
        subresource: str = "",
        strategic: Any = None,
    ) -> bytes:
        """Apply a patch to whatever the object is now, again if it changes under our hands."""

        async def change() -> bytes:
            current = self.entry(resource, namespace, name)
            await self.ready(resource, current)
            old = self.thing(resource, current)
            spent = None if strategic is None else functools.partial(spent_patch, resource.schema, old, strategic)
            thing = await self.heavy.run(options.size, self._patched, resource, changed, old, options, spent)
            metadata = self._metadata(resource, namespace, thing)
            check_name(metadata, name)
            self._check_uid(resource, metadata, name, current)
            if not metadata.get("resourceVersion") and self._is_guarded(resource):
                raise _unguarded(resource, name)
            self._check_version(resource, metadata, name, current)
            return await self._replace(resource, namespace, name, current, thing, options, subresource)

        return await self.until_written(resource, namespace, name, options, change)

    def _patched(
        self,
        resource: Resource,
        changed: Callable[[JsonObject], Any],
        old: JsonObject,
        options: Options,
        spent: Callable[[], Any] | None,
    ) -> JsonObject:
        return decoded(self.resources, resource, changed(copied(old)), options, patched=True, strategic=spent)

    async def until_written(
        self, resource: Resource, namespace: str, name: str, options: Options, write: Callable[[], Awaitable[T]]
    ) -> T:
        """Read, change and write again for as long as somebody else is faster, as a real server does.

        Whoever named the version they mean is refused when that is not the current one any more.
        """
        entry = self.store.get(resource.storage_key, self.key(resource, namespace, name))
        options.size = max(options.size, 0 if entry is None else len(entry.body))
        ends_at_s = self.clock.elapsed_s() + TRIES_S
        while True:
            try:
                return await write()
            except Overtaken:
                if self.clock.elapsed_s() >= ends_at_s:
                    raise

    async def apply(
        self,
        resource: Resource,
        namespace: str,
        name: str,
        applied: JsonObject,
        options: Options,
        subresource: str = "",
    ) -> tuple[bytes, bool]:
        """Server-side apply; True when that made the object."""

        async def write() -> tuple[bytes, bool]:
            return await self._apply(resource, namespace, name, copied(applied), options, subresource)

        return await self.until_written(resource, namespace, name, options, write)

    async def _apply(
        self, resource: Resource, namespace: str, name: str, applied: JsonObject, options: Options, subresource: str
    ) -> tuple[bytes, bool]:
        current = self.store.get(resource.storage_key, self.key(resource, namespace, name))
        if current is None and subresource:
            raise not_found(resource.group, resource.plural, name)
        applying.check(resource, applied)
        metadata = applied.setdefault("metadata", {})
        if metadata.get("managedFields"):
            raise bad_request("metadata.managedFields must be nil")
        if current is not None:
            await self.ready(resource, current)
        live = None if current is None else self.thing(resource, current)
        if current is None:
            metadata.pop("resourceVersion", None)
        else:
            self._check_version(resource, metadata, name, current)
            self._check_uid(resource, metadata, name, current)
        merged = await self.heavy.run(
            options.size, merged_with,
            resource.schema, live, applied, options, api_version=resource.api_version, now=self.clock.now(),
            subresource=subresource,
        )  # fmt: skip
        try:
            merged = await self.heavy.run(options.size, decoded, self.resources, resource, merged, options)
        except Undecodable as failure:
            raise _unconvertible(resource, merged, failure.why) from None
        check_name(self._metadata(resource, namespace, merged), name)
        if current is not None:
            return await self._replace(
                resource, namespace, name, current, merged, options, subresource, recorded=True
            ), False
        fields = merged["metadata"].pop("managedFields", [])
        try:
            made = await self._create_applied(resource, namespace, name, merged, fields, options)
        except Failure as failure:
            if failure.reason != "AlreadyExists":
                raise
            raise Overtaken(failure) from None
        return made, True

    async def replaced(
        self,
        resource: Resource,
        namespace: str,
        name: str,
        current: Entry,
        thing: JsonObject,
        options: Options,
        subresource: str,
    ) -> bytes:
        """Write what says already who owns its fields."""
        return await self._replace(resource, namespace, name, current, thing, options, subresource, recorded=True)

    async def _create_applied(
        self,
        resource: Resource,
        namespace: str,
        name: str,
        thing: JsonObject,
        fields: list[JsonObject],
        options: Options,
    ) -> bytes:
        if fields:
            thing["metadata"]["managedFields"] = fields
        return await self._create(resource, namespace, name, thing, options)

    async def _replace(
        self,
        resource: Resource,
        namespace: str,
        name: str,
        current: Entry,
        thing: JsonObject,
        options: Options,
        subresource: str,
        recorded: bool = False,
    ) -> bytes:
        old = self.thing(resource, current)
        self._keep_identity(resource, thing, old, name)
        now = self.clock.now()
        self._split_status(resource, thing, old, subresource)
        if not recorded:
            await self.heavy.run(options.size, record, self.versions, resource, old, thing, options, subresource, now)
        thing = await self.admitted(
            self.mutating, AdmissionAttributes("UPDATE", resource, namespace, name, thing, old, subresource, options)
        )
        _drop_double_owners(thing["metadata"], options, " after mutating admission happens")
        gates.drop(resource.group, resource.kind, thing, old)
        if not subresource:
            resource.strategy.prepare_update(thing, old)
            if resource.storage_key == "/services":
                self._keep_addresses(thing, old, name, namespace)
        if resource.strategy.counts_changes and _wanted(thing) != _wanted(old):
            thing["metadata"]["generation"] = old["metadata"].get("generation", 0) + 1
        await self.heavy.run(options.size, judge, resource, thing, old, options, subresource)
        await self.admitted(
            self.validating, AdmissionAttributes("UPDATE", resource, namespace, name, thing, old, subresource, options)
        )
        thing["metadata"]["resourceVersion"] = str(current.revision)
        if options.dry_run:
            return msgspec.json.encode(await self._as_if_kept(resource, thing))
        if _is_unchanged(thing, old) and await self._is_kept_so(resource, thing, current):
            await self.store.settled()
            await self.ready(resource, current)
            return self.body(resource, current)
        if is_over(thing):
            body = msgspec.json.encode(thing)
            await self.remove(resource, namespace, name, thing, current)
            return body
        return await self.put(resource, namespace, name, thing, current.revision)

    def _keep_identity(self, resource: Resource, thing: JsonObject, old: JsonObject, name: str) -> None:
        metadata, before = thing["metadata"], old["metadata"]
        if metadata.get("uid") and metadata["uid"] != before["uid"]:
            why = storage_precondition(resource, before, "UID", metadata["uid"], before["uid"])
            raise conflict(resource.group, resource.plural, name, why)
        for kept in _IMMUTABLE_META:
            metadata.pop(kept, None)
            if kept in before:
                metadata[kept] = before[kept]
        if "managedFields" not in metadata and "managedFields" in before:
            metadata["managedFields"] = copied(before["managedFields"])

    def _split_status(self, resource: Resource, thing: JsonObject, old: JsonObject, subresource: str) -> None:
        if subresource == "status":
            status = thing.get("status")
            metadata = thing["metadata"]
            for name in [name for name in thing if name not in ("apiVersion", "kind", "metadata")]:
                del thing[name]
            thing.update({name: copied(value) for name, value in old.items() if name not in ("metadata", "status")})
            if status is not None:
                thing["status"] = status
            for kept in resource.strategy.status_keeps:
                metadata.pop(kept, None)
                if kept in old["metadata"]:
                    metadata[kept] = copied(old["metadata"][kept])
            resource.strategy.prepare_status(thing, old)
        elif not subresource and resource.has_status:
            thing.pop("status", None)
            if "status" in old:
                thing["status"] = copied(old["status"])

    def _keep_addresses(self, thing: JsonObject, old: JsonObject, name: str, namespace: str) -> None:
        had_address = old["spec"].get("type") != "ExternalName"
        drop_what_the_type_has_not(thing, old)
        keep_what_was_given(thing, old)
        self.addresses.give(f"{namespace}/{name}", thing, is_new=not had_address)

    # -- deleting -------------------------------------------------------------------------------------------

    async def delete(
        self, resource: Resource, namespace: str, name: str, wanted: DeleteOptions, options: Options
    ) -> tuple[JsonObject, bool]:
        """The object as it was left, and whether it is gone for good."""
        return await self.until_written(
            resource,
            namespace,
            name,
            options,
            lambda: deletion.delete(self, resource, namespace, name, wanted, options),
        )

    # -- steps ----------------------------------------------------------------------------------------------

    def _metadata(self, resource: Resource, namespace: str, thing: JsonObject) -> JsonObject:
        metadata: JsonObject = thing["metadata"]
        if resource.namespaced:
            if not metadata.get("namespace"):
                metadata["namespace"] = namespace
            if metadata["namespace"] != namespace:
                raise bad_request(
                    "the namespace of the provided object does not match the namespace sent on the request"
                )
        else:
            metadata.pop("namespace", None)
        return metadata

    async def admitted(self, chain: list[Admit], attempt: AdmissionAttributes) -> JsonObject:
        thing = attempt.thing
        for admit in chain:
            changed = await admit(with_object(attempt, thing))
            if changed is not None:
                thing = changed
        return thing if thing is not None else {}

    async def put(
        self, resource: Resource, namespace: str, name: str, thing: JsonObject, expected: int | None
    ) -> bytes:
        key = self.key(resource, namespace, name)
        stored = await self._stored(resource, thing)
        try:
            entry = self.store.put(resource.storage_key, key, stored, expected)
        except StaleWrite:
            if expected is None:
                raise already_exists(resource.group, resource.plural, name) from None
            raise Overtaken(conflict(resource.group, resource.plural, name)) from None
        for told in self.after_write:
            told(resource, stored, True)
        await self.store.settled()
        thing["metadata"]["resourceVersion"] = str(entry.revision)
        await self.ready(resource, entry)
        return self.body(resource, entry)

    async def remove(self, resource: Resource, namespace: str, name: str, thing: JsonObject, current: Entry) -> None:
        stored = await self._stored(resource, thing)
        try:
            self.store.delete(resource.storage_key, self.key(resource, namespace, name), stored, current.revision)
        except StaleWrite:
            raise Overtaken(conflict(resource.group, resource.plural, name)) from None
        for told in self.after_write:
            told(resource, stored, False)
        await self.store.settled()

    async def _is_kept_so(self, resource: Resource, thing: JsonObject, current: Entry) -> bool:
        """Whether writing it down would change nothing: the version to keep it in may be another by now."""
        if resource.custom is None or self.versions.is_as_kept(resource, current):
            return True
        return _is_unchanged(await self._stored(resource, thing), msgspec.json.decode(current.body))

    async def _as_if_kept(self, resource: Resource, thing: JsonObject) -> JsonObject:
        """What would come back if this were written down."""
        kind = resource.custom
        if kind is None or len(kind.versions) == 1:
            return thing
        body = msgspec.json.encode(await self._stored(resource, thing))
        return await self.versions.tried(resource, body)

    async def _stored(self, resource: Resource, thing: JsonObject) -> JsonObject:
        """As it is kept: kind and version first, so that a list can cut them off."""
        version = resource.api_version
        if resource.custom is not None:
            kept = await self.versions.kept(resource, thing)
        else:
            kept = resource.strategy.to_stored(thing, resource.group)
        if kept is not thing or resource.custom is not None:
            version = kept["apiVersion"]
        return {"kind": resource.kind, "apiVersion": version, **without_type(kept)}


def _unguarded(resource: Resource, name: str) -> Failure:
    cause = ("FieldValueInvalid", "Invalid value: 0: must be specified for an update", "metadata.resourceVersion")
    return invalid(resource.group, resource.plural, name, [cause])


def _drop_double_owners(metadata: JsonObject, options: Options, when: str = "") -> None:
    owners = metadata.get("ownerReferences")
    if not isinstance(owners, list) or len(owners) < 2:
        return
    kept: dict[Any, JsonObject] = {}
    double = [str(owner.get("uid", "")) for owner in owners if kept.setdefault(token(owner), owner) is not owner]
    if double:
        metadata["ownerReferences"] = list(kept.values())
        options.warnings.append(
            f".metadata.ownerReferences contains duplicate entries{when}; API server dedups owner references in 1.20+, "
            "and may reject such requests as early as 1.24; please fix your requests; duplicate UID(s) observed: "
            f"{', '.join(double)}"
        )


def _empty_status(resource: Resource) -> JsonObject:
    """What Go writes for a status nobody has set: the fields that are never left out."""
    struct = resource.schema.fields["status"].struct
    made: JsonObject = struct.read({}, Notes()) if struct is not None else {}
    return made


def _wanted(thing: JsonObject) -> JsonObject:
    """What a change of generation counts: everything that is neither about the object nor reported by others."""
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
    """What was applied fits the schema and still is no object of the kind."""
    why = strategic_problem(resource.schema, merged) or plain
    metadata = merged.get("metadata") or {}
    version = f"{resource.group}/{resource.version}, Kind={resource.kind}"
    about = f"({metadata.get('namespace', '')}/{metadata.get('name', '')}; {version})"
    told = f"unable to convert unstructured object to {version}: {why}"
    return Failure(500, "", f"failed to convert new object {about} to proper version: {told}")


def check_name(metadata: JsonObject, name: str) -> None:
    told = metadata.get("name", "")
    if told != name:
        raise bad_request(
            f"the name of the object ({told}) does not match the name on the URL ({name})"
            if told
            else f"the name of the object ({name} based on URL) was undeterminable: name must be provided"
        )
