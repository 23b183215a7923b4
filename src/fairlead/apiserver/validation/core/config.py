"""Validation of ConfigMaps and Secrets."""

import base64
import json

from fairlead.apiserver.validation import errors as field
from fairlead.apiserver.validation import names
from fairlead.apiserver.validation.errors import Causes, Errors, Json

MOST_BYTES = 1024 * 1024


def _config_data(obj: Json) -> Causes:
    data, binary = obj.get("data") or {}, obj.get("binaryData") or {}
    size = 0
    for key, value in data.items():
        yield from field.malformed(f"data[{key}]", key, names.config_key)
        if key in binary:
            yield field.invalid(f"data[{key}]", key, "duplicate of key present in binaryData")
        size += len(value.encode())
    for key, value in binary.items():
        yield from field.malformed(f"binaryData[{key}]", key, names.config_key)
        size += len(base64.b64decode(value))
    if size > MOST_BYTES:
        yield field.too_long("", MOST_BYTES)


def config_map(new: Json, old: Json | None) -> Errors:
    return [*_frozen(new, old, ("data", "binaryData")), *_config_data(new)]


def _frozen(new: Json, old: Json | None, keys: tuple[str, ...]) -> Causes:
    if old is None or not old.get("immutable"):
        return
    text = "field is immutable when `immutable` is set"
    if not new.get("immutable"):
        yield field.forbidden("immutable", text)
    yield from (field.forbidden(key, text) for key in keys if new.get(key) != old.get(key))


_SECRET_KEYS = {
    "kubernetes.io/dockercfg": ".dockercfg",
    "kubernetes.io/dockerconfigjson": ".dockerconfigjson",
    "kubernetes.io/ssh-auth": "ssh-privatekey",
}


def _secret_data(obj: Json) -> Causes:
    data = obj.get("data") or {}
    for key in data:
        yield from field.malformed(f"data[{key}]", key, names.config_key)
    if sum(len(base64.b64decode(value)) for value in data.values()) > MOST_BYTES:
        yield field.too_long("data", MOST_BYTES)
    match obj.get("type"):
        case "kubernetes.io/service-account-token":
            if not (obj["metadata"].get("annotations") or {}).get("kubernetes.io/service-account.name"):
                yield field.required("metadata.annotations[kubernetes.io/service-account.name]")
        case "kubernetes.io/dockercfg" | "kubernetes.io/dockerconfigjson":
            key = _SECRET_KEYS[obj["type"]]
            if key not in data:
                yield field.required(f"data[{key}]")
            else:
                yield from _json_secret(base64.b64decode(data[key]), f"data[{key}]")
        case "kubernetes.io/basic-auth":
            if "username" not in data and "password" not in data:
                yield field.required("data[username]")
                yield field.required("data[password]")
        case "kubernetes.io/ssh-auth":
            if not data.get("ssh-privatekey"):
                yield field.required("data[ssh-privatekey]")
        case "kubernetes.io/tls":
            yield from (field.required(f"data[{key}]") for key in ("tls.crt", "tls.key") if key not in data)


def _json_secret(content: bytes, path: str) -> Errors:
    try:
        json.loads(content)
    except RecursionError:
        return []  # too deep to parse; accept
    except ValueError:
        return [field.invalid(path, "<secret contents redacted>", "invalid character")]
    return []


def secret(new: Json, old: Json | None) -> Causes:
    if old is not None:
        yield from field.immutable("type", new.get("type"), old.get("type"))
    yield from _frozen(new, old, ("data",))
    yield from _secret_data(new)
