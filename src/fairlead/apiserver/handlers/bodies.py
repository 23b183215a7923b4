"""The bodies of requests as values: objects, patches, options, in each of the types they come in."""

from aiohttp import web

from fairlead.apiserver.failures import bad_request, unsupported_media_type
from fairlead.apiserver.heavy import Heavy
from fairlead.apiserver.request import media_types, protobuf
from fairlead.apiserver.request.bodies import Sent, from_json, from_yaml
from fairlead.apiserver.request.decoding import Unrecognized, not_an_object, unrecognized
from fairlead.apiserver.request.options import DeleteOptions, parse_delete_options
from fairlead.apiserver.schema.shape import ParseError, kind_label

MAX_BODY_BYTES = 3 << 20
YAML_WEIGHT = 16  # how much longer YAML takes to read than JSON of its size


async def sent_object(heavy: Heavy, request: web.Request, kind: str) -> Sent:
    """The body of a request; `kind` is what it should be."""
    raw = await request.read()
    content, run = request.content_type, heavy.run
    if content == media_types.JSON or "Content-Type" not in request.headers:
        try:
            return await run(len(raw), from_json, raw)
        except ParseError as problem:
            raise unrecognized(kind, f"couldn't get version/kind; json parse error: {problem}", raw) from None
    if content == media_types.YAML:
        try:
            return await run(len(raw) * YAML_WEIGHT, from_yaml, raw)
        except ParseError as problem:
            raise unrecognized(kind, str(problem), raw) from None
    if content == media_types.PROTOBUF:
        try:
            return Sent(await run(len(raw), protobuf.decode, raw), raw)
        except protobuf.Unregistered as problem:
            raise bad_request(f"{kind_label(problem.kind, problem.version, kind)}: {problem}") from None
        except protobuf.Malformed as problem:
            raise unrecognized(kind, str(problem), raw) from None
    raise unsupported_media_type(media_types.OBJECTS)


async def delete_options(heavy: Heavy, request: web.Request) -> DeleteOptions:
    raw = await request.read()
    if not raw:
        return parse_delete_options(None, request.query)
    try:
        sent = (await sent_object(heavy, request, "DeleteOptions")).value
        if sent is not None and not isinstance(sent, dict):
            raise unrecognized("DeleteOptions", not_an_object(sent), raw)
    except Unrecognized as failure:
        # Here Kubernetes does not say what it is looking for.
        raise bad_request(failure.why) from None
    return parse_delete_options(sent, request.query)


async def sent_patch(heavy: Heavy, request: web.Request) -> Sent:
    raw = await request.read()
    try:
        if request.content_type == media_types.APPLY_PATCH:
            return await heavy.run(len(raw) * YAML_WEIGHT, from_yaml, raw)
        return await heavy.run(len(raw), from_json, raw)
    except ParseError as problem:
        texts = {
            media_types.APPLY_PATCH: f"error decoding YAML: error converting YAML to JSON: {problem}",
            media_types.STRATEGIC_MERGE_PATCH: str(problem),
        }
        raise bad_request(texts.get(request.content_type, f"error decoding patch: {problem}")) from None
