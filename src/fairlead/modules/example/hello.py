"""An example module: a web application without any framework, mounted at /hello by its manifest."""

import os

_served = 0


def start(context):  # type: ignore[no-untyped-def]
    print(f"hello {context['version']} starts in process {os.getpid()}")


def health():  # type: ignore[no-untyped-def]
    return "UP", f"{_served} requests"


async def app(scope, receive, send):  # type: ignore[no-untyped-def]
    global _served
    _served += 1
    version = os.path.basename(os.path.dirname(os.getcwd()))
    body = f"hello from version {version}\n".encode()
    headers = [(b"content-type", b"text/plain"), (b"content-length", str(len(body)).encode())]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": body})


def stop():  # type: ignore[no-untyped-def]
    print(f"hello stops after {_served} requests")
