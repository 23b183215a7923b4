"""What two honest servers may answer differently: the one list, each with its reason.

A value that differs by nature is replaced by a word before answers are compared; where it must be the same value
throughout a story (a UID, an object's version), by a numbered word, in the order the story meets it.
"""

import json
import re
from collections.abc import Callable
from typing import Any

UID = re.compile(r"\b[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\b")
TIME = re.compile(r"\b\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:\.\d+)?(?:Z| [+]0000 UTC)")
TOKEN = re.compile(r"\beyJ[\w-]+\.[\w-]+\.[\w-]+")
SUFFIX = re.compile(r"\b(gen-a*|Gen_|kube-api-access-)[bcdfghjklmnpqrstvwxz2456789]{5}\b")
ADDRESS = re.compile(r"\b(?:10\.0\.0|127\.96\.\d+)\.\d+\b")
SERVER = re.compile(r"\b127\.0\.0\.1:\d+")
DOCUMENT = re.compile(r'(?<=Invalid value: )"\{(?:[^"\\]|\\.)*\}"')
NODE_PORT = re.compile(r"(?<=:)3[0-2]\d{3}(?=/(?:TCP|UDP))")
SELF = re.compile(r"\bselfType\d+")
AGE = re.compile(r"^\d+s$")
# The last restart of a container, beside their number: of a fixed day it grows by one every day.
AGO = re.compile(r"\((?:\d+[ydhms])+ ago\)")

# (what, where it stands in any string, what it becomes, why it may differ)
TEXTS: tuple[tuple[str, re.Pattern[str], str, str], ...] = (
    ("time", TIME, "<time>", "the servers are asked at different moments"),
    ("token", TOKEN, "<token>", "each server signs with its own key"),
    ("suffix", SUFFIX, r"\1<suffix>", "drawn by lot"),
    ("service address", ADDRESS, "<address>", "each server has its own range of service addresses"),
    ("patched document", DOCUMENT, "<document>", "quoted whole, its fields in the order each server has them"),
    ("node port", NODE_PORT, "<port>", "drawn by lot"),
    ("name of a type", SELF, "selfType", "numbered by lot on the real server"),
    ("server address", SERVER, "<server>", "each server listens on its own port"),
)

# (the key, what its value becomes, why it may differ)
KEYS: tuple[tuple[str, str, str], ...] = (
    ("continue", "<continue>", "opaque to clients"),
    ("nodePort", "<port>", "drawn by lot"),
    ("serverAddressByClientCIDRs", "<server>", "each server names its own address"),
    ("caBundle", "<authority>", "each server is told its own"),
)
WHY_NUMBERED = {
    "uid": "drawn by lot; the same object has the same UID throughout",
    "version": "counts all writes of a server; the same state of an object has the same version throughout",
}


# What is known to differ and is therefore in no story, each with its reason.
KNOWN_DIFFERENCES: tuple[tuple[str, str], ...] = (
    (
        "what a CEL rule may cost",
        "the estimate is that of Go's own compiler; here rules are bounded by the request alone",
    ),
    ("`self.?field` in a CEL rule", "the library cannot evaluate it: refused when the definition is written"),
    ("further syntax errors of one CEL rule", "the first is told; Go's parser goes on and guesses"),
    (
        "a patch of a custom object's apiVersion warns of unknown fields",
        "the real server looks for that version's schema",
    ),
    (
        "a ControllerRevision with blanks in its data cannot be changed",
        "the real server compares bytes with what it wrote",
    ),
    ("EndpointSlices' last-change-trigger-time, nodes' ttl annotation", "nobody here reads them"),
    ("loopback addresses in endpoints", "they lead to process pods here, and nowhere on a real cluster"),
    (
        "the first write that changes nothing in a claim for a volume",
        "the real server gives it a new resourceVersion, for it wrote what it had not read",
    ),
    ("privileged containers", "allowed here; the real server asks for --allow-privileged, as every cluster sets it"),
    ("quoted values that are empty", '`{}`, `""` and `null` are all the same in an object as it is kept here'),
    ("the order of unknown fields in a patched object", "that of the fields in the real server's Go structs"),
    (
        "who owns the metrics of an autoscaler that is written in both versions",
        "managers are compared in the version of the write; the real server compares each in its own",
    ),
    (
        "numbers beyond 32 bits in a strategic patch",
        "the real server lets them wrap around; refused here, as in every other request",
    ),
    ("OpenAPI v2 as protobuf", "empty here: kubectl asks v3 first"),
)


class Words:
    """Puts words in the place of what is volatile, for the answers of one server in one story."""

    def __init__(self) -> None:
        self._uids: dict[str, str] = {}
        self._versions: dict[str, str] = {}

    def of(self, value: Any) -> Any:
        return self._walk(value, "")

    def text(self, text: str) -> str:
        text = UID.sub(lambda found: self._numbered(self._uids, "uid", found[0]), text)
        for _, pattern, word, _ in TEXTS:
            text = pattern.sub(word, text)
        return text

    def _walk(self, value: Any, key: str) -> Any:
        match value:
            case dict():
                return self._object(value)
            case list():
                return [self._walk(each, key) for each in value]
            case str():
                text = _SEVERAL.sub(_sorted_lines, self.text(value))
                if key == "message" and "version" in text.lower():
                    # Versions stand in sentences too.
                    text = re.sub(r"(?<!\.go:)\b\d+\b(?!-)", lambda found: self._versions.get(found[0], found[0]), text)
                return text
        return value

    def _object(self, thing: dict[str, Any]) -> dict[str, Any]:
        words = {key: word for key, word, _ in KEYS}
        made: dict[str, Any] = {}
        for key in sorted(thing):
            value = thing[key]
            if "kube-api-access-" in key:  # who owns what has names in it too
                made[self.text(key)] = self._walk(value, key)
            elif key in words and value:
                made[key] = words[key]
            elif key == "resourceVersion" and isinstance(value, str) and value:
                made[key] = self._version(thing, value)
            elif key == "managedFields" and isinstance(value, list):
                # Sorted by time, to the second: which of two writes comes first depends on when the second turned.
                made[key] = sorted(self._walk(value, key), key=_owner)
            else:
                made[key] = self._walk(value, key)
        if thing.get("kind") == "Table":
            _table(made)
        if thing.get("kind") == "Status":
            _sort_causes(made)
        return made

    def _version(self, metadata: dict[str, Any], value: str) -> str:
        # A list's version is the server's own count at that moment, whatever else is written to it.
        if "uid" not in metadata:
            return "<now>"
        return self._numbered(self._versions, "version", value)

    @staticmethod
    def _numbered(seen: dict[str, str], what: str, value: str) -> str:
        return seen.setdefault(value, f"<{what} {len(seen) + 1}>")


# Go walks what is applied in the order of its maps, which is by lot.
_SEVERAL = re.compile(r"(?<=: errors:\n)(?:  .*(?:\n|$))+")


def _sorted_lines(found: re.Match[str]) -> str:
    return "\n".join(sorted(found[0].rstrip("\n").split("\n")))


def _owner(entry: Any) -> str:
    return json.dumps(entry, sort_keys=True)


def _sort_causes(status: dict[str, Any]) -> None:
    """What is wrong with a custom object, or with a schema, is told in the order of Go's maps: by lot."""
    details = status.get("details") or {}
    causes, group = details.get("causes") or [], details.get("group", "")
    by_lot = group.endswith("k8s.io") and any("properties[" in each.get("field", "") for each in causes)
    if len(causes) < 2 or not (by_lot or ("." in group and not group.endswith("k8s.io"))):
        return
    details["causes"] = sorted(causes, key=_owner)
    told = sorted({f"{each.get('field')}: {each.get('message')}" for each in causes})
    if all(each in status["message"] for each in told):
        status["message"] = f"{status['message'].partition(' is invalid: ')[0]} is invalid: {told}"


def _table(table: dict[str, Any]) -> None:
    """Descriptions are prose that the embedded cluster does not carry; an age depends on the moment."""
    columns = table.get("columnDefinitions") or []
    for column in columns:
        column["description"] = "<prose>"
    for row in table.get("rows") or ():
        row["cells"] = [_without_age(cell) if isinstance(cell, str) else cell for cell in row["cells"]]


def _without_age(cell: str) -> str:
    return "<age>" if AGE.match(cell) else AGO.sub("(<age> ago)", cell)


Normalise = Callable[[Any], Any]
