"""Warnings about ports and paths that collide: found among as many as people write, and bounded beyond."""

from collections.abc import Iterator
from typing import Any

import pytest

from fairlead.apiserver.validation import warnings

Json = dict[str, Any]


def pod(**spec: Any) -> Json:
    return {
        "metadata": {"name": "p"},
        "spec": {"containers": [{"name": "c", "image": "i", **spec.pop("main", {})}], **spec},
    }


def warned(thing: Json) -> list[str]:
    return warnings.on_write("", "Pod", thing, None)


def test_each_port_is_compared_with_every_other() -> None:
    ports = [{"containerPort": 1, "hostPort": number + 1, "protocol": "TCP"} for number in range(300)]
    told = warned(pod(main={"ports": [*ports, ports[7]]}))
    assert told == ["spec.containers[0].ports[300]: duplicate port definition with spec.containers[0].ports[7]"]


def test_paths_of_a_volume_are_compared() -> None:
    items = [{"key": "k", "path": f"p{number}"} for number in range(300)]
    volume = {"name": "v", "configMap": {"name": "m", "items": [*items, {"key": "k", "path": "p9/x"}]}}
    assert warned(pod(volumes=[volume])) == ['volume "v" (ConfigMap "m"): overlapping paths: "p9/x" with "p9"']


def test_ports_beyond_counting_are_not_compared_all_with_each_other(monkeypatch: pytest.MonkeyPatch) -> None:
    pairs: list[str] = []

    def both(place: str, port: Json, other: str, there: Json) -> Iterator[str]:
        pairs.append(place)
        return iter(())

    monkeypatch.setattr(warnings, "_both", both)
    ports = [{"containerPort": 1, "hostPort": number + 1} for number in range(20_000)]
    assert warned(pod(main={"ports": ports})) == []
    assert 0 < len(pairs) <= warnings.MOST_COMPARED


def test_paths_beyond_counting_are_not_compared_all_with_each_other() -> None:
    compared = 0

    class Counted(str):
        def rstrip(self, chars: str | None = None, /) -> str:
            nonlocal compared
            compared += 1
            return str(self)

    items = [{"key": "k", "path": Counted(f"p{number}")} for number in range(20_000)]
    assert warned(pod(volumes=[{"name": "v", "secret": {"secretName": "s", "items": items}}])) == []
    assert compared**2 / 2 <= 1.1 * warnings.MOST_COMPARED
