"""A webhook that both servers call: what it answers is in the path it is called at."""

import base64
import contextlib
import http.server
import json
import ssl
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.rigs.kube.certificates import Authority


class Hook(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    reviews = 0  # of this connection

    def do_POST(self) -> None:
        self.reviews += 1
        review = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        request = review["request"]
        path = self.path.partition("?")[0].strip("/")
        if path.startswith("convert/"):
            self._send(200, json.dumps(converted(path.removeprefix("convert/"), review)).encode())
            return
        if path == "broken":
            self._send(500, b"no")
        elif path == "nonsense":
            self._send(200, b"{")
        else:
            if path == "slow":
                time.sleep(1.5)
            if path == "connection":
                path = "kept" if self.reviews > 1 else "opened"
            response = {"uid": request["uid"], **answer(path, request)}
            review = {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": response}
            self._send(200, json.dumps(review).encode())

    def _send(self, status: int, body: bytes) -> None:
        with contextlib.suppress(OSError):  # whoever would not wait has gone
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None: ...  # noqa: A002


def answer(path: str, request: dict[str, Any]) -> dict[str, Any]:
    thing = request.get("object") or request.get("oldObject") or {}
    if (thing.get("metadata") or {}).get("name") == "probe":
        return {"allowed": False, "status": {"message": "probed", "code": 418}}
    match path:
        case "deny":
            return {"allowed": False, "status": {"message": "not today", "code": 403, "reason": "Forbidden"}}
        case "silent":
            return {"allowed": False}
        case "warn":
            return {"allowed": True, "warnings": ["mind the gap", 'and "this"']}
        case "large":
            return {"allowed": True, "warnings": ["still read"], "auditAnnotations": {"a": "x" * 300_000}}
        case "kept" | "opened":
            return {"allowed": True, "warnings": [f"connection {path}"]}
        case "first" | "second" | "third":
            # Whoever is called puts its name behind those that were called before.
            calls = (request["object"].get("data") or {}).get("calls", "")
            return _patched(request, [add_data("calls", f"{calls} {path}".strip())])
        case "once":
            data = request["object"].get("data") or {}
            return {"allowed": True} if "once" in data else _patched(request, [add_data("once", "yes")])
        case "label":
            return _patched(request, [{"op": "add", "path": "/metadata/labels", "value": {"marked": "yes"}}])
        case "sidecar":
            if any(each["name"] == "sidecar" for each in request["object"]["spec"]["containers"]):
                return {"allowed": True}
            sidecar = {"name": "sidecar", "image": "sidecar:1"}
            patch = [{"op": "add", "path": "/spec/containers/-", "value": sidecar}]
            return {"allowed": True, "patchType": "JSONPatch", "patch": encoded(patch)}
        case "mutate":
            return _patched(request, [{"op": "add", "path": "/data/touched", "value": "yes"}])
        case "again":
            count = str(len(request["object"].get("data") or {}))
            return _patched(request, [{"op": "add", "path": "/data/seen", "value": count}])
        case "spoil":
            return _patched(request, [{"op": "remove", "path": "/none/such"}])
        case "test":
            return _patched(request, [{"op": "test", "path": "/data/a", "value": "z"}])
        case "shape":
            return _patched(request, [{"op": "add", "path": "/data", "value": "text"}])
        case "odd":
            return _patched(request, [{"op": "twist", "path": "/data/a", "value": "z"}])
        case "unreadable":
            return {"allowed": True, "patchType": "JSONPatch", "patch": base64.b64encode(b"{nope").decode()}
        case "untyped":
            return {"allowed": True, "patch": base64.b64encode(b"[]").decode()}
        case "mistyped":
            return {"allowed": True, "patchType": "Odd", "patch": base64.b64encode(b"[]").decode()}
        case "rename":
            return _patched(request, [{"op": "replace", "path": "/metadata/name", "value": "other"}])
        case "invalid":
            return _patched(request, [{"op": "add", "path": "/data/bad key", "value": "x"}])
        case "tell":
            return {"allowed": False, "status": {"message": told(request), "code": 400}}
    return {"allowed": True}


def converted(path: str, review: dict[str, Any]) -> dict[str, Any]:
    """Versions differ in one field: v1 has the spec's `name`, the others `title`."""
    request = review["request"]
    objects = [json.loads(json.dumps(each)) for each in request["objects"]]
    for each in objects:
        spec = each.get("spec") or {}
        old, new = ("title", "name") if request["desiredAPIVersion"].endswith("/v1") else ("name", "title")
        if old in spec:
            spec[new] = spec.pop(old)
        each["apiVersion"] = request["desiredAPIVersion"]
    response: dict[str, Any] = {"uid": request["uid"], "result": {"status": "Success"}, "convertedObjects": objects}
    metadata = objects[0]["metadata"]
    if metadata.get("labels", {}).get("odd") == "yes":
        match path:
            case "fail":
                response["result"] = {"status": "Failure", "message": "not this one"}
            case "silent":
                response["result"] = {}
            case "uid":
                response["uid"] = "another"
            case "none":
                response["convertedObjects"] = []
            case "more":
                response["convertedObjects"] = [*objects, *objects]
            case "version":
                objects[0]["apiVersion"] = "example.com/v7"
            case "kind":
                objects[0]["kind"] = "Other"
            case "name":
                metadata["name"] = "other"
            case "bare":
                del objects[0]["metadata"]
            case "label":
                metadata["labels"] = {"bad key!": "x"}
            case "shape":
                metadata["labels"] = {"a": 5}
            case "touch":
                metadata |= {"labels": {"odd": "yes", "new": "label"}, "annotations": {"a": "b"}, "finalizers": ["a/b"]}
            case "review":
                return {"apiVersion": "apiextensions.k8s.io/v2", "kind": "ConversionReview", "response": response}
            case "empty":
                return {"apiVersion": review["apiVersion"], "kind": "ConversionReview"}
    return {"apiVersion": review["apiVersion"], "kind": "ConversionReview", "response": response}


def _patched(request: dict[str, Any], patch: list[dict[str, Any]]) -> dict[str, Any]:
    if not (request.get("object") or {}).get("data"):
        patch = [{"op": "add", "path": "/data", "value": {}}, *patch]
    return {"allowed": True, "patchType": "JSONPatch", "patch": encoded(patch)}


def add_data(key: str, value: str) -> dict[str, str]:
    return {"op": "add", "path": f"/data/{key}", "value": value}


def encoded(patch: list[dict[str, Any]]) -> str:
    return base64.b64encode(json.dumps(patch).encode()).decode()


def told(request: dict[str, Any]) -> str:
    """What a webhook gets to see, as text that can be compared."""
    seen = {key: value for key, value in request.items() if key not in ("uid", "object", "oldObject", "userInfo")}
    seen["user"] = request["userInfo"]["username"]
    for name in ("object", "oldObject"):
        thing = request.get(name)
        seen[name] = None if thing is None else {**thing, "metadata": sorted(thing["metadata"])}
    return json.dumps(seen, sort_keys=True)


@contextlib.contextmanager
def hook_server(folder: Path) -> Iterator[dict[str, str]]:
    """Its address and the authority to trust, as a story refers to them."""
    authority = Authority(folder / "pki")
    pair = authority.server()
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(pair.cert, pair.key)
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Hook)
    server.daemon_threads = True
    server.socket = tls.wrap_socket(server.socket, server_side=True)
    thread = threading.Thread(target=server.serve_forever, name="hooks", daemon=True)
    thread.start()
    bundle = base64.b64encode(authority.ca_file.read_bytes()).decode()
    yield {"url": f"https://127.0.0.1:{server.server_address[1]}", "ca": bundle}
    server.shutdown()
    server.server_close()
    thread.join()
