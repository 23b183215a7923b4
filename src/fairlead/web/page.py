"""The API as an HTML page, rendered from its OpenAPI document. It loads no other resources."""

import json
from collections.abc import Sequence
from html import escape
from typing import Any

from fairlead.web.openapi import document
from fairlead.web.routes import Answer, Call, Route, RouteTable

STYLE = """
:root { color-scheme: light dark; --ink: #1c2430; --soft: #5b6776; --line: #d9dfe7; --card: #fff; --ground: #f4f6f9;
  --code: #eef2f7; --get: #1f6f54; --post: #8a4b08; }
@media (prefers-color-scheme: dark) { :root { --ink: #e4e9f0; --soft: #9aa7b8; --line: #2d3846; --card: #18202b;
  --ground: #10161e; --code: #222c39; --get: #6fd3b0; --post: #f0b46c; } }
* { box-sizing: border-box; }
body { margin: 0; background: var(--ground); color: var(--ink); font: 16px/1.55 system-ui, sans-serif; }
main { max-width: 60rem; margin: 0 auto; padding: 2.5rem 1.25rem 4rem; }
h1 { font-size: 1.9rem; margin: 0; letter-spacing: -.01em; }
h1 small { font-size: .95rem; font-weight: 400; color: var(--soft); margin-left: .5rem; }
h2 { font-size: 1.25rem; margin: 2.5rem 0 .5rem; }
h3 { font-size: .8rem; text-transform: uppercase; letter-spacing: .06em; color: var(--soft); margin: 1.25rem 0 .25rem; }
h3 a { text-transform: none; letter-spacing: 0; }
p { margin: .4rem 0; } .lead { color: var(--soft); max-width: 46rem; }
section.card { background: var(--card); border: 1px solid var(--line); border-radius: 10px; padding: 1.1rem 1.3rem;
  margin: 1rem 0; }
.route { display: flex; flex-wrap: wrap; gap: .25rem .75rem; align-items: baseline; font-size: 1.05rem; margin: 0; }
.route code { background: none; padding: 0; font-size: 1.05rem; overflow-wrap: anywhere; }
.verb { font: 700 .8rem/1 ui-monospace, monospace; padding: .35rem .5rem; border-radius: 5px; border: 1px solid; }
.get { color: var(--get); } .post { color: var(--post); }
code, pre { font-family: ui-monospace, SFMono-Regular, Menlo, monospace; font-size: .88rem; background: var(--code);
  border-radius: 5px; }
code { padding: .1rem .3rem; } pre { padding: .8rem 1rem; overflow-x: auto; margin: .4rem 0; }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; width: 100%; font-size: .93rem; }
td, th { text-align: left; vertical-align: top; padding: .35rem .8rem .35rem 0; border-top: 1px solid var(--line); }
th { color: var(--soft); font-weight: 600; border-top: 0; } td:first-child { white-space: nowrap; }
a { color: inherit; } nav a { margin-right: 1rem; }
"""


def page(table: RouteTable) -> bytes:
    spec = document(table)
    info = spec["info"]
    operations = [
        _operation(path, method, operation)
        for path, methods in spec["paths"].items()
        for method, operation in methods.items()
    ]
    schemas = [_schema(name, schema) for name, schema in sorted(spec["components"]["schemas"].items())]
    return f"""<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<title>Fairlead: the API</title><style>{STYLE}</style></head><body><main>
<h1>Fairlead <small>API {escape(info["version"])}</small></h1>
<p class="lead">{escape(info["description"])}</p>
<nav><a href="#schemas">Schemas</a><a href="/openapi.json">OpenAPI document</a><a href="/metrics">Metrics</a></nav>
<h3>Every call needs a token</h3>
<pre>curl -H "Authorization: Bearer $TOKEN" "$URL/schedulePod"</pre>
<p>On <code>fairlead up</code> both are files of its data folder: <code>api.url</code> and <code>api.token</code>.
Elsewhere the token is any that the cluster accepts, such as that of <code>kubectl create token NAME</code>.</p>
<h2>Routes</h2>
{"".join(operations) or "<p>None are served yet.</p>"}
<h2 id="schemas">Schemas</h2>
{"".join(schemas)}
</main></body></html>
""".encode()


def page_route(table: RouteTable) -> Route:
    async def handle(_: Call) -> Answer:
        return Answer(page(table), content_type="text/html; charset=utf-8")

    return Route("GET", "/docs", handle, "This API, for people", public=True, hidden=True)


def root_route() -> Route:
    """A browser that opens the address alone gets to the page."""

    async def handle(_: Call) -> Answer:
        return Answer(b"", 302, "text/plain; charset=utf-8", {"Location": "/docs"})

    return Route("GET", "/", handle, "To the page of this API", public=True, hidden=True)


def _operation(path: str, method: str, operation: dict[str, Any]) -> str:
    parts = [
        f'<section class="card"><p class="route"><span class="verb {escape(method)}">{escape(method.upper())}</span>'
        f"<code>{escape(path)}</code><span>{_words(operation['summary'])}</span></p>"
    ]
    if "description" in operation:
        parts += [f"<p>{_words(paragraph)}</p>" for paragraph in operation["description"].split("\n\n")]
    if "parameters" in operation:
        rows = [(each["name"], each["in"], each.get("description", "")) for each in operation["parameters"]]
        parts.append(f"<h3>Parameters</h3>{_table(('name', 'in', 'meaning'), rows)}")
    if "requestBody" in operation:
        content = operation["requestBody"]["content"]["application/json"]
        parts.append(f"<h3>Takes {_type(content['schema'])}</h3>")
        if "example" in content:
            parts.append(f"<pre>{escape(json.dumps(content['example'], indent=2, ensure_ascii=False))}</pre>")
    rows = [
        (code, _type(answer["content"]["application/json"]["schema"]), _words(answer["description"]))
        for code, answer in operation["responses"].items()
    ]
    parts.append(f"<h3>Answers</h3>{_table(('status', 'schema', 'when'), rows, escaped=True)}</section>")
    return "".join(parts)


def _schema(name: str, schema: dict[str, Any]) -> str:
    required = set(schema.get("required", ()))
    rows = [
        (
            f"<code>{escape(field)}</code>",
            _type(shape),
            ("" if field in required else "optional. ") + _words(shape.get("description", "")),
        )
        for field, shape in schema.get("properties", {}).items()
    ]
    text = f"<p>{_words(schema['description'])}</p>" if "description" in schema else ""
    fields = _table(("field", "type", "meaning"), rows, escaped=True) if rows else f"<p>{_type(schema)}</p>"
    title = f'<p class="route"><code>{escape(name)}</code></p>'
    return f'<section class="card" id="{escape(name)}">{title}{text}{fields}</section>'


def _type(shape: dict[str, Any]) -> str:
    if "$ref" in shape:
        name = escape(shape["$ref"].rpartition("/")[2])
        return f'<a href="#{name}">{name}</a>'
    if "anyOf" in shape:
        return " or ".join(_type(each) for each in shape["anyOf"])
    if shape.get("type") == "array":
        return f"list of {_type(shape.get('items') or {})}"
    if "enum" in shape:
        return " or ".join(f"<code>{escape(json.dumps(each))}</code>" for each in shape["enum"])
    return escape(str(shape.get("type", "anything")))


def _table(head: tuple[str, ...], rows: Sequence[tuple[str, ...]], *, escaped: bool = False) -> str:
    top = "".join(f"<th>{word}</th>" for word in head)
    body = "".join(
        "<tr>" + "".join(f"<td>{cell if escaped else _words(cell)}</td>" for cell in row) + "</tr>" for row in rows
    )
    return f'<div class="scroll"><table><tr>{top}</tr>{body}</table></div>'


def _words(text: str) -> str:
    """A sentence, with what stands between backticks as code."""
    parts = escape(text).split("`")
    return "".join(f"<code>{part}</code>" if number % 2 else part for number, part in enumerate(parts))
