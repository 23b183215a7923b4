"""The embedded API server: HTTP in, Kubernetes' answers out.

Paths, content types and callers are handled here, objects by `rest`. Every failure below becomes a Status: a request
never gets a bare error, and our own mistakes are logged and reported as such.
"""

import asyncio
import contextlib
import functools
import json
import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import msgspec
import structlog
from aiohttp import web
from aiohttp.web_protocol import RequestPayloadError

from fairlead import __version__
from fairlead.apiserver import failures
from fairlead.apiserver.auth.impersonation import Impersonation, identity_of, refusal
from fairlead.apiserver.auth.rbac import Action, Rbac
from fairlead.apiserver.auth.tokens import ANONYMOUS, BadToken, Tokens
from fairlead.apiserver.failures import Failure
from fairlead.apiserver.fields import patches
from fairlead.apiserver.handlers import discovery, lists, pieces, streams, subresources
from fairlead.apiserver.handlers.aggregation import pass_on
from fairlead.apiserver.handlers.bodies import MAX_BODY_BYTES, delete_options, sent_object, sent_patch
from fairlead.apiserver.handlers.logs import Logs
from fairlead.apiserver.handlers.logs import log as log_of
from fairlead.apiserver.handlers.openapi import Schemas
from fairlead.apiserver.handlers.reviews import review
from fairlead.apiserver.handlers.warnings import add as add_warnings
from fairlead.apiserver.handlers.watch import Watching
from fairlead.apiserver.json_values import JsonObject, copied
from fairlead.apiserver.printers.tables import TableForm
from fairlead.apiserver.registry.api_services import ApiServices, Backend
from fairlead.apiserver.registry.attributes import Write
from fairlead.apiserver.registry.resources import Resource
from fairlead.apiserver.registry.rest import Rest
from fairlead.apiserver.request import media_types
from fairlead.apiserver.request.bodies import Sent
from fairlead.apiserver.request.info import RequestInfo, User, is_true, parse_path, version_problem, whole_number
from fairlead.apiserver.request.options import DeleteOptions, Options, agent_prefix, check_dry_run, check_manager
from fairlead.apiserver.schema.facts import load
from fairlead.apiserver.storage.store import Entry, Unwritable
from fairlead.apiserver.validation import errors as field

log = structlog.get_logger("fairlead.apiserver")

MAX_LINE_BYTES = 128 << 10  # the first line of an exec request has the whole command
# kubectl looks here, in protobuf, for kinds that /openapi/v3 does not have; an empty document says that there are none.
OPENAPI_V2_TYPE = "application/com.github.proto-openapi.spec.v2.v1.0+protobuf"
OPENAPI_V2 = b"\x0a\x032.0\x12\x0e\x0a\x08Fairlead\x12\x02v1\x42\x00"
# Not served; what to use instead: pods are processes of this machine.
_REACH = "a pod's own address, and a Service's, can be reached from this machine (kubectl get pods,services -o wide)"
INSTEAD = {"proxy": f"use kubectl port-forward; {_REACH}"}


class Server:
    def __init__(self, rest: Rest, tokens: Tokens, rbac: Rbac, api_services: ApiServices) -> None:
        self.rest = rest
        self.tokens = tokens
        self.rbac = rbac
        self.api_services = api_services
        self.logs: Logs | None = None
        self.streams: streams.Streams | None = None
        self.ready = False
        self._impersonation = Impersonation(rbac)
        self.address = "127.0.0.1:0"
        self._schemas = Schemas(rest)
        self._large_answers = pieces.LargeAnswers()
        self._watches: set[asyncio.Task[Any]] = set()

    def application(self) -> web.Application:
        application = web.Application(
            client_max_size=MAX_BODY_BYTES,
            handler_args={
                "max_field_size": 32768,
                "max_line_size": MAX_LINE_BYTES,
                "auto_decompress": False,  # as on a real server, a compressed body is not unpacked
            },
        )
        application.router.add_route("*", "/{path:.*}", self.answer)
        return application

    async def answer(self, request: web.Request) -> web.StreamResponse:
        warnings: list[str] = []
        try:
            user = self._user(request)
            info = parse_path(request.method, request.raw_path.partition("?")[0], request.query)
            if info is None:
                response: web.StreamResponse = await self._plain(request, user)
            else:
                response = await self._about_objects(request, user, info, warnings)
        except Failure as failure:
            response = self._failed(failure)
        except web.HTTPRequestEntityTooLarge:
            response = self._failed(failures.too_large(MAX_BODY_BYTES))
        except (web.HTTPException, ConnectionError, TimeoutError):
            raise
        except (RequestPayloadError, UnicodeEncodeError) as problem:
            # Half a body, or half a character: the client's mistake.
            response = self._failed(failures.bad_request(f"the request cannot be read: {problem}"))
        except Unwritable as problem:
            log.error("not written", method=request.method, path=request.path, problem=str(problem))
            response = self._failed(failures.internal(str(problem)))
        except Exception as problem:
            log.exception("bug in the API server", method=request.method, path=request.path)
            message = f"{type(problem).__name__}: this is a bug in Fairlead, please report it"
            response = self._failed(failures.internal(message))
        if not response.prepared:
            add_warnings(response, warnings)
        try:
            return await self._large_answers.send(request, response)
        except Failure as failure:
            return self._failed(failure)

    # -- who ------------------------------------------------------------------------------------------------

    def _user(self, request: web.Request) -> User:
        scheme, _, token = request.headers.get("Authorization", "").partition(" ")
        if scheme.lower() != "bearer" or not token.strip():
            return ANONYMOUS
        try:
            return self.tokens.user(token.strip(), self.rest.clock.now())
        except BadToken:
            raise failures.unauthorized() from None

    def _permitted(self, request: web.Request, user: User, action: Action) -> User:
        """The user, after impersonation; a Failure where it may not do this."""
        if (identity := identity_of(request.headers)) is not None:
            user = self._impersonation.become(user, identity, action)
        self._permit(user, action)
        return user

    def _permit(self, user: User, action: Action) -> None:
        if not self.rbac.allows(user, action):
            raise refusal(user, action)

    # -- paths without objects --------------------------------------------------------------------------------

    async def _plain(self, request: web.Request, user: User) -> web.StreamResponse:
        path = request.path.rstrip("/") or "/"
        verb = request.method.lower()
        action = Action("get" if verb in ("get", "head") else verb, path=path)
        user = self._permitted(request, user, action)
        if request.method not in ("GET", "HEAD"):
            raise failures.method_not_allowed()
        if (found := re.fullmatch(r"/apis/([^/]+)/([^/]+)", path)) and (backend := self._elsewhere(found[1], found[2])):
            return await pass_on(self.api_services, backend, request, user)
        match path:
            case "/healthz" | "/livez" | "/healthz/ping" | "/livez/ping" | "/readyz/ping":
                return web.Response(text="ok")
            case "/readyz":
                return web.Response(text="ok") if self.ready else web.Response(status=503, text="starting")
            case "/version":
                return _json(version())
            case "/api" | "/apis":
                return self._discovery(request, core=path == "/api")
            case "/api/v1":
                return self._resources("", "v1")
            case "/openapi/v3":
                return _json(self._schemas.index())
            case "/":
                return _json({"paths": ["/api", "/api/v1", "/apis", "/healthz", "/openapi/v3", "/version"]})
        if found := re.fullmatch(r"/apis/([^/]+)(?:/([^/]+))?", path):
            return self._resources(found[1], found[2]) if found[2] else self._group(found[1])
        if found := re.fullmatch(r"/openapi/v3/(api|apis/([^/]+))/([^/]+)", path):
            if not self.rest.resources.has_version(found[2] or "", found[3]):
                return web.Response(status=404)
            return _bytes(self._schemas.document(found[2] or "", found[3]))
        if path == "/openapi/v2":
            return self._openapi_v2(request)
        return _no_page()

    def _discovery(self, request: web.Request, *, core: bool) -> web.Response:
        accept = request.headers.get("Accept", "")
        if "as=APIGroupDiscoveryList" in accept and "v=v2" in accept and "v=v2beta1;" not in accept.split(",")[0]:
            body = discovery.aggregated(self.rest.resources, core=core, elsewhere=self.api_services.backends.served)
            kind = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
            return web.Response(body=msgspec.json.encode(body), headers={"Content-Type": kind})
        if core:
            return _json(discovery.api_versions(self.address))
        return _json(discovery.group_list(self.rest.resources, self.api_services.backends.served))

    def _group(self, name: str) -> web.Response:
        versions = discovery.groups(self.rest.resources, self.api_services.backends.served).get(name)
        if versions is None:
            return _no_page()
        return _json({"kind": "APIGroup", "apiVersion": "v1", **discovery.group(name, versions)})

    def _resources(self, group: str, version: str) -> web.Response:
        found = [each for each in self.rest.resources if (each.group, each.version) == (group, version)]
        if not found:
            return _no_page()
        return _json(discovery.resource_list(found, f"{group}/{version}" if group else version))

    def _openapi_v2(self, request: web.Request) -> web.Response:
        accept = request.headers.get("Accept", "")
        if "protobuf" in accept and "application/json" not in accept:
            return web.Response(body=OPENAPI_V2, content_type=OPENAPI_V2_TYPE)
        return _bytes(self._schemas.older())

    def _elsewhere(self, group: str, version: str) -> Backend | None:
        """Which other server serves a group version; what is served here is never passed on."""
        if not group or self.rest.resources.has_version(group, version):
            return None
        return self.api_services.backends.find(group, version)

    # -- objects ----------------------------------------------------------------------------------------------

    async def _about_objects(
        self, request: web.Request, user: User, info: RequestInfo, warnings: list[str]
    ) -> web.StreamResponse:
        action = Action(info.verb, info.group, info.plural, info.subresource, info.name, info.namespace)
        user = self._permitted(request, user, action)
        if backend := self._elsewhere(info.group, info.version):
            return await pass_on(self.api_services, backend, request, user)
        resource = self.rest.resources.find(info.group, info.version, info.plural)
        if resource is None:
            if info.group and not any(each.group == info.group and each.custom is None for each in self.rest.resources):
                return _no_page()
            raise failures.no_such_path()
        if not resource.namespaced and info.namespace and (resource.storage_key != "/namespaces" or not info.name):
            raise failures.no_such_path()
        if not resource.is_stored and (info.name or (resource.namespaced and not info.namespace)):
            raise failures.no_such_path()
        if resource.strategy.deprecation:
            warnings.append(resource.strategy.deprecation)
        if resource.custom is not None and (text := resource.custom.deprecation(resource.version)):
            warnings.append(text)
        options = self._options(request, info, user)
        write = Write(resource, info.namespace, info.name, options, info.subresource, warnings.append)
        if info.subresource:
            return await self._subresource(request, write, info)
        if info.verb not in resource.verbs or request.method == "HEAD":
            raise failures.method_not_allowed()
        if info.verb in ("update", "patch") and not info.name:
            raise failures.method_not_allowed()
        if not resource.is_stored:
            sent = await sent_object(self.rest.heavy, request, resource.kind)
            return _json(await review(self.rest, self.tokens, self.rbac, sent.value, resource, info, options), 201)
        match info.verb:
            case "get":
                return await self._get(request, write)
            case "list":
                return await self._list(request, resource, info.namespace)
            case "watch":
                return await self._watch(request, resource, info, warnings)
            case "create":
                sent = await sent_object(self.rest.heavy, request, resource.kind)
                if info.name or (resource.namespaced and not info.namespace):
                    raise failures.method_not_allowed()
                return self._object(request, resource, await self.rest.create(write, sent), 201)
            case "update":
                sent = await sent_object(self.rest.heavy, request, resource.kind)
                return self._object(request, resource, await self.rest.update(write, sent))
            case "patch":
                body, is_new = await self._patch(request, write)
                return self._object(request, resource, body, 201 if is_new else 200)
            case "delete":
                return await self._delete(request, write)
            case "deletecollection":
                return await self._delete_collection(request, write)
        raise failures.method_not_allowed()

    @staticmethod
    def _options(request: web.Request, info: RequestInfo, user: User) -> Options:
        query = request.query
        dry = query.getall("dryRun", [])
        validation = query.get("fieldValidation", "")
        manager = query.get("fieldManager", "")
        if info.verb in ("create", "update", "patch"):
            errors = [*check_manager(manager), *check_dry_run(dry)]
            errors += field.supported("fieldValidation", validation, ("", "Ignore", "Strict", "Warn"))
            if errors:
                raise failures.options_invalid(f"{info.verb.title()}Options", *errors)
        agent = agent_prefix(request.headers.get("User-Agent", ""))
        return Options(
            user,
            manager=manager or agent or "unknown",
            dry_run="All" in dry,
            validation=validation or "Warn",  # type: ignore[arg-type]
            force=query.get("force", "").lower() in ("true", "1"),
            query={name: query[name] for name in ("fieldManager", "fieldValidation") if query.get(name)},
        )

    async def _get(self, request: web.Request, write: Write) -> web.Response:
        version = request.query.get("resourceVersion", "")
        if version and version_problem(version):
            raise Failure(500, "", lists.not_a_version(version))
        resource = write.resource
        entry = self.rest.entry(resource, write.namespace, write.name)
        await self.rest.store.settled()
        await self.rest.ready(resource, entry)
        return self._object(request, resource, self.rest.body(resource, entry))

    async def _list(self, request: web.Request, resource: Resource, namespace: str) -> web.Response:
        await lists.ready(self.rest, resource, namespace, request.query)
        found = lists.page(self.rest, resource, namespace, request.query)
        await self.rest.store.settled()
        await self.rest.ready(resource, *found.entries)
        form = self._form(request, resource)
        size = sum(len(entry.body) for entry in found.entries)
        if form is None:
            return _bytes(await self.rest.heavy.run(size, lists.list_body, self.rest, resource, found))

        def render() -> bytes:
            things = [self.rest.thing(resource, entry) for entry in found.entries]
            return msgspec.json.encode(form.many(things, found.metadata(), request.query))

        return _bytes(await self.rest.heavy.run(size, render))

    async def _watch(
        self, request: web.Request, resource: Resource, info: RequestInfo, warnings: list[str]
    ) -> web.StreamResponse:
        query = dict(request.query)
        if info.name:
            query["fieldSelector"] = f"metadata.name={info.name}"
        stay_s = float(whole_number(query, "timeoutSeconds") or 1800)
        form = self._form(request, resource)
        first = [True]

        def render(entry: Entry) -> bytes:
            if form is None:
                return self.rest.body(resource, entry)
            with_columns, first[0] = first[0], False
            return msgspec.json.encode(form.one(self.rest.thing(resource, entry), query, with_columns))

        def mark(thing: JsonObject) -> JsonObject:
            return thing if form is None else form.mark(thing)

        watching = Watching(self.rest, resource, info.namespace, query, render, stay_s, mark)
        watching.check()
        response = web.StreamResponse(
            headers={"Content-Type": "application/json", "Cache-Control": "no-cache, private"}
        )
        add_warnings(response, warnings)
        response.enable_chunked_encoding()
        await response.prepare(request)
        marks = is_true(query, "sendInitialEvents")

        def is_followed() -> bool:
            return request.transport is not None and not request.transport.is_closing()

        # A client that has gone shows as a reset at the next write, and ends the watch.
        with self._long_running(), contextlib.suppress(ConnectionError):
            async for lines in watching.lines(marks, is_followed):
                await pieces.write(response, lines)
            await response.write_eof()
        return response

    @contextlib.contextmanager
    def _long_running(self) -> Iterator[None]:
        """A request that `end_watches` ends."""
        task = asyncio.current_task()
        assert task is not None
        self._watches.add(task)
        try:
            yield
        finally:
            self._watches.discard(task)

    async def end_watches(self) -> None:
        """Also watches whose clients are gone."""
        watches = list(self._watches)
        for task in watches:
            task.cancel()
        await asyncio.gather(*watches, return_exceptions=True)

    async def _delete(self, request: web.Request, write: Write) -> web.Response:
        write, deletion = await self._deletion(request, write)
        thing, is_gone = await self.rest.delete(write, deletion)
        resource = write.resource
        if is_gone and not resource.strategy.answers_deleted:
            return _json(failures.success(resource.group, resource.plural, write.name, thing["metadata"]["uid"]))
        return _json(thing, 202 if not is_gone and deletion.cascades_the_old_way else 200)

    async def _deletion(self, request: web.Request, write: Write) -> tuple[Write, DeleteOptions]:
        """The delete as its options want it, and these."""
        deletion = await delete_options(self.rest.heavy, request)
        if text := write.resource.strategy.delete_warning(deletion.propagation):
            write.warn(text)
        return replace(write, options=replace(write.options, dry_run=deletion.dry_run)), deletion

    async def _delete_collection(self, request: web.Request, write: Write) -> web.Response:
        write, deletion = await self._deletion(request, write)
        resource = write.resource
        await lists.ready(self.rest, resource, write.namespace, request.query)
        found = lists.page(self.rest, resource, write.namespace, request.query)
        await self.rest.ready(resource, *found.entries)
        for entry in found.entries:
            metadata = msgspec.json.decode(entry.body)["metadata"]
            each = replace(write, namespace=metadata.get("namespace", ""), name=metadata["name"])
            with contextlib.suppress(Failure):  # deleted by somebody else meanwhile
                await self.rest.delete(each, deletion)
        size = sum(len(entry.body) for entry in found.entries)
        return _bytes(await self.rest.heavy.run(size, lists.list_body, self.rest, resource, found))

    async def _patch(self, request: web.Request, write: Write) -> tuple[bytes, bool]:
        """The patched object, and whether the patch created it."""
        kind, resource = request.content_type, write.resource
        if resource.custom is None and kind not in media_types.PATCHES:
            raise failures.unknown_patch_type()
        if resource.custom is not None and kind not in media_types.PATCHES_OF_CUSTOM_KINDS:
            raise failures.unsupported_media_type(media_types.PATCHES_OF_CUSTOM_KINDS)
        sent = await sent_patch(self.rest.heavy, request)
        if kind == media_types.APPLY_PATCH:
            self._check_apply(request)
            creates = Action("create", resource.group, resource.plural, "", write.name, write.namespace)
            return await self.rest.apply(write, sent, functools.partial(self._permit, write.options.user, creates))
        if write.options.force:
            error = field.forbidden("force", "may not be specified for non-apply patch")
            raise failures.options_invalid("PatchOptions", error)
        patcher = _patcher(kind, resource, sent.value)
        is_strategic = kind == media_types.STRATEGIC_MERGE_PATCH
        return await self.rest.change(write, patcher, patch=sent, is_strategic=is_strategic), False

    @staticmethod
    def _check_apply(request: web.Request) -> None:
        if not request.query.get("fieldManager"):
            raise failures.options_invalid(
                "PatchOptions", field.required("fieldManager", "is required for apply patch")
            )

    # -- subresources -----------------------------------------------------------------------------------------

    async def _subresource(self, request: web.Request, write: Write, info: RequestInfo) -> web.StreamResponse:
        resource, rest = write.resource, self.rest
        sub = resource.subresource(info.subresource)
        if sub is None:
            raise failures.no_such_path()
        if info.subresource in INSTEAD:
            rest.entry(resource, info.namespace, info.name)
            why = f"{info.subresource} is not served by Fairlead's embedded cluster: {INSTEAD[info.subresource]}"
            raise failures.not_implemented(why)
        if info.verb not in sub.verbs:
            raise failures.method_not_allowed()
        if info.subresource in streams.KINDS:
            return await self._stream(request, write, info)

        async def sent(kind: str) -> Any:
            return (await sent_object(rest.heavy, request, kind)).value

        match info.subresource:
            case "status":
                return await self._status(request, write, info.verb)
            case "scale":
                return await self._scale(request, write, info.verb)
            case "binding":
                return _json(await subresources.bind(rest, write, await sent("Binding")), 201)
            case "eviction":
                return _json(await subresources.evict(rest, write, await sent("Eviction")), 201)
            case "finalize":
                return _bytes(await subresources.finalize(rest, write, await sent("Namespace")))
            case "token":
                body = await sent("TokenRequest")
                return _json(subresources.token_request(rest, self.tokens, write, body), 201)
            case "log":
                return await log_of(rest, self.logs, request, resource, info)
        what = f"{resource.plural}/{info.subresource}"
        raise failures.not_implemented(f"{what} is not served by Fairlead's embedded cluster")

    async def _status(self, request: web.Request, write: Write, verb: str) -> web.Response:
        resource = write.resource
        if verb == "get":
            body = self.rest.body(resource, await self.rest.current(write))
        elif verb == "update":
            body = await self.rest.update(write, await sent_object(self.rest.heavy, request, resource.kind))
        else:
            body, _ = await self._patch(request, write)
        return self._object(request, resource, body)

    async def _scale(self, request: web.Request, write: Write, verb: str) -> web.Response:
        rest, resource = self.rest, write.resource
        if verb == "get":
            scale_now = subresources.scale_of(resource, rest.thing(resource, await rest.current(write)))
            return self._scaled(request, resource, scale_now)
        sent: Sent
        if verb == "update":
            sent = await sent_object(rest.heavy, request, "Scale")

            def changed(thing: JsonObject) -> JsonObject:
                return subresources.with_scale(resource, thing, sent.value, patched=False)
        elif request.content_type == media_types.APPLY_PATCH:
            self._check_apply(request)
            sent = await sent_patch(rest.heavy, request)
            scale = await rest.until_written(lambda: subresources.apply_scale(rest, write, copied(sent.value)))
            return self._scaled(request, resource, scale)
        else:
            sent = await sent_patch(rest.heavy, request)
            patch = _patcher(request.content_type, resource, sent.value)

            def changed(thing: JsonObject) -> JsonObject:
                patched = patch(subresources.scale_of(resource, thing))
                return subresources.with_scale(resource, thing, patched, patched=True)

        body = await rest.change(write, changed, patch=sent)
        return self._scaled(request, resource, subresources.scale_of(resource, msgspec.json.decode(body)))

    def _scaled(self, request: web.Request, resource: Resource, scale: JsonObject) -> web.Response:
        printed = replace(resource, group="autoscaling", kind="Scale", storage_key="autoscaling/scales", custom=None)
        form = self._form(request, printed)
        return _json(scale if form is None else form.one(scale, request.query, True))

    async def _stream(self, request: web.Request, write: Write, info: RequestInfo) -> web.StreamResponse:
        # A WebSocket is opened by GET, which must not be enough for those who may only read.
        action = Action("create", info.group, info.plural, info.subresource, info.name, info.namespace)
        if not self.rbac.allows(write.options.user, action):
            raise failures.forbidden("", info.plural, info.name, "")
        pod = self.rest.thing(write.resource, await self.rest.current(write))
        container = streams.check(request, info, pod)
        if self.streams is None:
            raise failures.not_implemented("no node provider is connected to this API server: there are no streams")
        with self._long_running():
            return await self.streams(request, info.subresource, pod, container)

    def _form(self, request: web.Request, resource: Resource) -> TableForm | None:
        return TableForm.negotiate(request.headers.get("Accept", ""), resource, self.rest.clock.now)

    def _object(self, request: web.Request, resource: Resource, body: bytes, status: int = 200) -> web.Response:
        form = self._form(request, resource)
        if form is None:
            return _bytes(body, status)
        return _json(form.one(msgspec.json.decode(body), request.query, True), status)

    def _failed(self, failure: Failure) -> web.Response:
        try:
            response = _json(failure.status(), failure.code)
        except UnicodeEncodeError:  # half a surrogate pair, quoted from the request
            response = _bytes(json.dumps(failure.status()).encode(), failure.code)
        if failure.retry_after_s is not None:
            response.headers["Retry-After"] = str(failure.retry_after_s)
        return response


def version() -> JsonObject:
    kubernetes = load().kubernetes
    major, minor, *_ = kubernetes.split(".")
    return {
        "major": major,
        "minor": minor,
        "gitVersion": f"v{kubernetes}+fairlead.{__version__}",
        "gitCommit": "",
        "gitTreeState": "clean",
        "buildDate": "1970-01-01T00:00:00Z",
        "goVersion": "none",
        "compiler": "none",
        "platform": "fairlead/embedded",
    }


def _patcher(kind: str, resource: Resource, sent: Any) -> Callable[[JsonObject], Any]:
    def changed(thing: JsonObject) -> Any:
        try:
            match kind:
                case media_types.JSON_PATCH:
                    return patches.json_patch(thing, sent)
                case media_types.MERGE_PATCH:
                    return patches.merge_patch(thing, sent)
                case media_types.STRATEGIC_MERGE_PATCH:
                    return patches.strategic_merge(resource.schema, thing, sent)
        except patches.PatchFailed as problem:
            details: JsonObject | None = {} if problem.code == 422 else None
            raise Failure(problem.code, problem.reason, str(problem), details) from None
        raise failures.unknown_patch_type()

    return changed


def _json(thing: Any, status: int = 200) -> web.Response:
    return web.Response(body=msgspec.json.encode(thing), status=status, content_type="application/json")


def _no_page() -> web.Response:
    """The answer to a path that is not served, as Kubernetes gives it."""
    return web.Response(status=404, text="404 page not found\n")


def _bytes(body: bytes, status: int = 200) -> web.Response:
    return web.Response(body=body, status=status, content_type="application/json")
