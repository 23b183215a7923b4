"""Formats of strings: names, labels, ports, paths. Each check returns the server's messages, mostly none."""

import ipaddress
import re
from functools import lru_cache

from fairlead.apiserver.validation import errors as field
from fairlead.apiserver.validation.errors import Errors

_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?")
_SUBDOMAIN = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
_LABEL_1035 = re.compile(r"[a-z]([-a-z0-9]*[a-z0-9])?")
_QUALIFIED = re.compile(r"([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]")
_LABEL_VALUE = re.compile(r"(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?")
_CONFIG_KEY = re.compile(r"[-._a-zA-Z0-9]+")
_PORT_NAME = re.compile(r"[-a-z0-9]+")
_HTTP_HEADER = re.compile(r"[-A-Za-z0-9]+")
_PERCENT = re.compile(r"[0-9]+%")
_LEADING_ZEROS = re.compile(r"(?<![0-9a-fA-F:])0+(?=[0-9])")

_SUBDOMAIN_TEXT = (
    "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and "
    "end with an alphanumeric character (e.g. 'example.com', regex used for validation is "
    r"'[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')"
)
_LABEL_TEXT = (
    "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end with "
    "an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is "
    "'[a-z0-9]([-a-z0-9]*[a-z0-9])?')"
)
_LABEL_1035_TEXT = (
    "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an alphabetic character, "
    "and end with an alphanumeric character (e.g. 'my-name',  or 'abc-123', regex used for validation is "
    "'[a-z]([-a-z0-9]*[a-z0-9])?')"
)
_QUALIFIED_TEXT = (
    "name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric "
    "character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is "
    "'([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')"
)
_LABEL_VALUE_TEXT = (
    "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and "
    "end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation is "
    "'(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')"
)
_CONFIG_KEY_TEXT = (
    "a valid config key must consist of alphanumeric characters, '-', '_' or '.' (e.g. 'key.name',  or 'KEY_NAME',  or "
    "'key-name', regex used for validation is '[-._a-zA-Z0-9]+')"
)


def _limited(text: str, most: int, unit: str = "characters") -> list[str]:
    return [f"must be no more than {most} {unit}"] if len(text.encode()) > most else []


def beginning(text: str) -> str:
    """A prefix of a name: it may end in a dash, since a suffix follows."""
    return text[:-2] + "a" if text.endswith("-") and len(text) > 1 else text


@lru_cache(maxsize=65536)
def subdomain(text: str) -> list[str]:
    return [*_limited(text, 253), *([] if _SUBDOMAIN.fullmatch(text) else [_SUBDOMAIN_TEXT])]


@lru_cache(maxsize=65536)
def label(text: str) -> list[str]:
    found = _limited(text, 63)
    if not _LABEL.fullmatch(text):
        if _SUBDOMAIN.fullmatch(text):
            return [*found, "must not contain dots"]
        return [*found, _LABEL_TEXT]
    return found


@lru_cache(maxsize=4096)
def label_1035(text: str) -> list[str]:
    """A label that starts with a letter."""
    return [*_limited(text, 63), *([] if _LABEL_1035.fullmatch(text) else [_LABEL_1035_TEXT])]


def path_segment(text: str) -> list[str]:
    if text in (".", ".."):
        return [f"may not be '{text}'"]
    return [f"may not contain '{character}'" for character in "/%" if character in text]


@lru_cache(maxsize=65536)
def qualified(text: str) -> list[str]:
    """A label's key, a finalizer, a resource: `name` or `prefix/name`."""
    parts = text.split("/")
    if len(parts) > 2:
        return [
            "a valid label key must consist of alphanumeric characters, '-', '_' or '.', and must start and end with "
            "an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is "
            "'([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]') with an optional DNS subdomain prefix and '/' (e.g. "
            "'example.com/MyName')"
        ]
    name = parts[-1]
    found: list[str] = []
    if len(parts) == 2:
        if not parts[0]:
            found.append("prefix part must be non-empty")
        else:
            found += [f"prefix part {text}" for text in subdomain(parts[0])]
    if not name:
        found.append("name part must be non-empty")
    elif len(name) > 63:
        found.append("name part must be no more than 63 bytes")
    if not _QUALIFIED.fullmatch(name):
        found.append(_QUALIFIED_TEXT)
    return found


@lru_cache(maxsize=65536)
def label_value(text: str) -> list[str]:
    return [*_limited(text, 63, "bytes"), *([] if _LABEL_VALUE.fullmatch(text) else [_LABEL_VALUE_TEXT])]


def config_key(text: str) -> list[str]:
    found = _limited(text, 253)
    if not _CONFIG_KEY.fullmatch(text):
        return [*found, _CONFIG_KEY_TEXT]
    if text == ".":
        return [*found, "must not be '.'"]
    if text == "..":
        return [*found, "must not be '..'"]
    return [*found, "must not start with '..'"] if text.startswith("..") else found


def env_name(text: str) -> list[str]:
    """Anything printable but the equals sign."""
    if text and all(character != "=" and " " <= character <= "~" for character in text):
        return []
    return ["a valid environment variable name must consist only of printable ASCII characters other than '='"]


def port_number(number: int) -> list[str]:
    return [] if 1 <= number <= 65535 else ["must be between 1 and 65535, inclusive"]


@lru_cache(maxsize=4096)
def port_name(text: str) -> list[str]:
    found: list[str] = []
    if len(text) > 15:
        found.append("must be no more than 15 characters")
    if not text or not _PORT_NAME.fullmatch(text):
        found.append("must contain only alpha-numeric characters (a-z, 0-9), and hyphens (-)")
    if not re.search("[a-z]", text):
        found.append("must contain at least one letter (a-z)")
    if "--" in text:
        found.append("must not contain consecutive hyphens")
    if text and (text[0] == "-" or text[-1] == "-"):
        found.append("must not begin or end with a hyphen")
    return found


def http_header(text: str) -> list[str]:
    if _HTTP_HEADER.fullmatch(text):
        return []
    return [
        "a valid HTTP header must consist of alphanumeric characters or '-' (e.g. 'X-Header-Name', regex used for "
        "validation is '[-A-Za-z0-9]+')"
    ]


def percent(text: str) -> list[str]:
    if _PERCENT.fullmatch(text):
        return []
    return [
        "a valid percent string must be a numeric string followed by an ending '%' (e.g. '1%',  or '93%', regex used "
        "for validation is '[0-9]+%')"
    ]


def domain_prefixed(text: str, path: str) -> Errors:
    """`example.com/some-path`"""
    if not text:
        return [field.required(path)]
    domain, slash, rest = text.partition("/")
    if not slash or not domain or not rest:
        return [field.invalid(path, text, 'must be a domain-prefixed path (such as "acme.io/foo")')]
    found: Errors = field.malformed(path, domain, subdomain)
    if not re.fullmatch(r"[A-Za-z0-9/\-._~%!$&'()*+,;=:]+", rest):
        detail = "Invalid path (regex used for validation is '[A-Za-z0-9/\\-._~%!$&'()*+,;=:]+')"
        found.append(field.invalid(path, rest, detail))
    return found


def ip(text: str) -> list[str]:
    try:
        found = ipaddress.ip_address(text)
    except ValueError:
        try:
            ipaddress.ip_address(_LEADING_ZEROS.sub("", text))
        except ValueError:
            return ["must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)"]
        return ["must not have leading 0s"]
    if isinstance(found, ipaddress.IPv6Address) and found.ipv4_mapped is not None:
        return ["must not be an IPv4-mapped IPv6 address"]
    return []


def cidr(text: str) -> list[str]:
    address, _, bits = text.partition("/")
    plain = f"{_LEADING_ZEROS.sub('', address)}/{bits.lstrip('0') or '0'}"
    try:
        found = ipaddress.ip_network(plain, strict=False)
    except ValueError:
        return ["must be a valid CIDR value, (e.g. 10.9.8.0/24 or 2001:db8::/64)"]
    if not bits.isdecimal():
        return ["must be a valid CIDR value, (e.g. 10.9.8.0/24 or 2001:db8::/64)"]
    if plain != text:
        return ["must not have leading 0s in IP or prefix length"]
    if isinstance(found, ipaddress.IPv6Network) and found.network_address.ipv4_mapped is not None:
        return ["must not have an IPv4-mapped IPv6 address"]
    if ipaddress.ip_address(address) != found.network_address:
        return ["must not have bits set beyond the prefix length"]
    return []


def subdomain_with_underscores(text: str) -> list[str]:
    """A subdomain in a search list, which may have underscores, as SRV records do."""
    good = re.fullmatch(r"_?[a-z0-9]([-_a-z0-9]*[a-z0-9])?(\._?[a-z0-9]([-_a-z0-9]*[a-z0-9])?)*", text)
    detail = (
        "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '_', '-' or '.', and must "
        "start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is "
        r"'_?[a-z0-9]([-_a-z0-9]*[a-z0-9])?(\._?[a-z0-9]([-_a-z0-9]*[a-z0-9])?)*')"
    )
    return [*_limited(text, 253), *([] if good else [detail])]
