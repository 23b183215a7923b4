"""A pod while plugins change it: a copy of its JSON tree, with the ways in which a plugin may add to it.

Fields we do not know stay. Everything added is a union with what is there: a draft of a draft's own result changes
nothing, so a second call by the API server gives an empty patch.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import msgspec

from fairlead.model.mistakes import sentence

Expression = Mapping[str, Any]

REQUIRED: Final = "requiredDuringSchedulingIgnoredDuringExecution"
PREFERRED: Final = "preferredDuringSchedulingIgnoredDuringExecution"
MOST_TERMS: Final = 64
"""Terms that branches may multiply to; the pod's own terms alone may be more."""
MOST_POD_BYTES: Final = 1 << 20 | 1 << 19
"""What etcd stores of one object."""
MOST_EXPRESSIONS: Final = MOST_POD_BYTES // 40
"""In required terms: with more of them a pod is larger than that."""
MOST_WARNINGS: Final = 20
"""That a client is shown."""


class PluginError(Exception):
    """A plugin cannot do its part: rolled back or refused, by its policy."""


class NotAPod(Exception):
    """The object is not a pod that could be read."""


class TooLarge(Exception):
    """The pod is, or would become, larger than the API server stores."""


class Unpatchable(Exception):
    """The affinity has a form that the API server will refuse anyway."""


@dataclass(frozen=True, slots=True)
class Note:
    """What a plugin added, and the fact behind it."""

    plugin: str
    effect: str
    because: str
    term: Mapping[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A draft at one moment."""

    pod: bytes
    sizes: tuple[int, int, int]
    preferred: Mapping[bytes, int]


@dataclass(slots=True)
class Draft:
    pod: dict[str, Any]
    plugin: str = ""
    notes: list[Note] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    side_objects: dict[tuple[str, str], str] = field(default_factory=dict)
    """ConfigMaps that the pod will mount, by namespace and name, with the kind of their script."""
    preferences: bool = True
    """Whether preferred terms are added; a scheduler that scores cached bytes itself needs none."""
    _preferred: Counter[bytes] = field(default_factory=Counter)
    _present: tuple[list[Any], Counter[bytes]] | None = None
    """The pod's preferred terms, and how many there are of each."""

    @classmethod
    def of(cls, pod: Mapping[str, Any]) -> "Draft":
        text = plain(pod)
        if len(text) > MOST_POD_BYTES:
            raise TooLarge
        return cls(msgspec.json.decode(text))

    def copy(self) -> "Draft":
        return Draft(
            clone(self.pod),
            self.plugin,
            list(self.notes),
            list(self.warnings),
            dict(self.side_objects),
            self.preferences,
            Counter(self._preferred),
        )

    def checkpoint(self) -> "Checkpoint":
        """What `rollback` goes back to; cheaper than a copy, which is needed only where something fails."""
        sizes = (len(self.notes), len(self.warnings), len(self.side_objects))
        return Checkpoint(plain(self.pod), sizes, dict(self._preferred))

    def rollback(self, checkpoint: "Checkpoint") -> None:
        notes, warnings, objects = checkpoint.sizes
        self.pod = msgspec.json.decode(checkpoint.pod)
        del self.notes[notes:], self.warnings[warnings:]
        for key in list(self.side_objects)[objects:]:
            del self.side_objects[key]
        self._preferred = Counter(checkpoint.preferred)

    # -- reading ---------------------------------------------------------------------------------------------------

    @property
    def metadata(self) -> dict[str, Any]:
        return _child(self.pod, "metadata")

    @property
    def spec(self) -> dict[str, Any]:
        return _child(self.pod, "spec")

    @property
    def labels(self) -> Mapping[str, str]:
        return (self.pod.get("metadata") or {}).get("labels") or {}

    @property
    def annotations(self) -> Mapping[str, str]:
        return (self.pod.get("metadata") or {}).get("annotations") or {}

    def items(self, kind: str) -> list[dict[str, Any]]:
        """`containers`, `initContainers` or `volumes`."""
        return (self.pod.get("spec") or {}).get(kind) or []

    def claim_of_volume(self) -> dict[str, str]:
        """The claim behind each volume that has one."""
        found = ((volume.get("name", ""), volume.get("persistentVolumeClaim")) for volume in self.items("volumes"))
        return {name: claim["claimName"] for name, claim in found if isinstance(claim, dict) and "claimName" in claim}

    def node_terms(self) -> Iterator[Mapping[str, Any]]:
        """Every term about nodes, preferred and required."""
        affinity = _node_affinity(self.pod)
        for each in affinity.get(PREFERRED) or ():
            yield each.get("preference") or {}
        yield from (affinity.get(REQUIRED) or {}).get("nodeSelectorTerms") or ()

    def node_keys(self) -> set[str]:
        """The labels of nodes that the pod speaks of, in its affinity and in its nodeSelector."""
        found = {each.get("key", "") for term in self.node_terms() for each in term.get("matchExpressions") or ()}
        return found | set((self.pod.get("spec") or {}).get("nodeSelector") or {})

    # -- adding ----------------------------------------------------------------------------------------------------

    def label(self, key: str, value: str) -> None:
        _child(self.metadata, "labels")[key] = value

    def annotate(self, key: str, value: str) -> None:
        _child(self.metadata, "annotations")[key] = value

    def set_items(self, kind: str, items: list[dict[str, Any]]) -> None:
        self.spec[kind] = items

    def note(self, effect: str, because: str, term: Mapping[str, Any] | None = None) -> None:
        self.notes.append(Note(self.plugin, effect, because, term))

    def warn(self, sentence: str) -> None:
        if len(self.warnings) < MOST_WARNINGS and sentence not in self.warnings:
            self.warnings.append(sentence)

    def prefer(self, weight: int, expressions: Sequence[Expression], because: str) -> None:
        """A preferred term. Called twice for the same term, it is there twice, and not a third time by another call."""
        if not self.preferences:
            return
        term = {"weight": weight, "preference": {"matchExpressions": [dict(each) for each in expressions]}}
        self.note("preferred", because, term)
        key = _canonical(term)
        self._preferred[key] += 1
        terms, present = self._preferred_terms(_node_affinity(self.pod).get(PREFERRED))
        if present[key] < self._preferred[key]:
            terms.append(term)
            present[key] += 1
            _child(_child(self.spec, "affinity"), "nodeAffinity")[PREFERRED] = terms

    def _preferred_terms(self, terms: list[Any] | None) -> tuple[list[Any], Counter[bytes]]:
        """With their number, counted once: terms may be many, and so may those to come."""
        if self._present is None or self._present[0] is not terms or self._present[1].total() != len(self._present[0]):
            self._present = terms or [], Counter(map(_canonical, terms or ()))
        return self._present

    def prefer_pods_apart(self, weight: int, term: Mapping[str, Any], because: str) -> None:
        """A preferred term of the podAntiAffinity, once."""
        if not self.preferences:
            return
        entry = {"weight": weight, "podAffinityTerm": dict(term)}
        self.note("preferred", because, entry)
        apart = _child(_child(self.spec, "affinity"), "podAntiAffinity")
        present = apart.get(PREFERRED) or []
        if entry not in present:
            apart[PREFERRED] = [*present, entry]

    def require(self, expressions: Sequence[Expression], because: str) -> None:
        """Conditions that must hold as well: they join each of the pod's own terms."""
        self.require_any([expressions], because)

    def require_any(self, branches: Sequence[Sequence[Expression]], because: str) -> None:
        """One of the branches must hold as well. Terms without conditions match no node and stay as they are."""
        branches = [branch for branch in branches if branch]
        if not branches:
            return
        for branch in branches:
            self.note("required", because, {"matchExpressions": [dict(each) for each in branch]})
        terms = (_node_affinity(self.pod).get(REQUIRED) or {}).get("nodeSelectorTerms") or []
        own = [term for term in terms if not _is_empty(term)]
        if terms and not own:
            return
        if own and all(any(not _lacking(term, branch) for branch in branches) for term in own):
            return
        joined = [_joined(term, branch) for term in own or [_NO_TERM] for branch in branches]
        if len(joined) > max(MOST_TERMS, len(own)):
            raise PluginError(
                f"the pod's {len(own)} required terms and {len(branches)} declared ones "
                f"would become {len(joined)}; at most {MOST_TERMS} are possible"
            )
        if sum(len(term.get("matchExpressions") or ()) for term in joined) > MOST_EXPRESSIONS:
            raise TooLarge
        node = _child(_child(self.spec, "affinity"), "nodeAffinity")
        _child(node, REQUIRED)["nodeSelectorTerms"] = joined


plain: Final = msgspec.json.Encoder().encode


def clone(pod: Mapping[str, Any]) -> dict[str, Any]:
    """A copy of a JSON tree: through text, which is many times faster than object by object."""
    found: dict[str, Any] = msgspec.json.decode(plain(pod))
    return found


_NO_TERM: Final[Mapping[str, Any]] = {}
FEW: Final = 1000
"""Expressions times expressions: fewer are compared one by one."""


class _Shape(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    """The fields that we read, with their types: what else a pod has is not looked at."""


class _Mount(_Shape, frozen=True):
    name: str | None = None
    mount_path: str | None = None
    sub_path: str | None = None
    mount_propagation: str | None = None


class _Container(_Shape, frozen=True):
    name: str | None = None
    image: str | None = None
    volume_mounts: list[_Mount] | None = None


class _ClaimSource(_Shape, frozen=True):
    claim_name: str | None = None


class _Volume(_Shape, frozen=True):
    name: str | None = None
    persistent_volume_claim: _ClaimSource | None = None


class _Metadata(_Shape, frozen=True):
    name: str | None = None
    generate_name: str | None = None
    namespace: str | None = None
    labels: dict[str, str] | None = None
    annotations: dict[str, str] | None = None
    owner_references: list[dict[str, Any]] | None = None


class _Spec(_Shape, frozen=True):
    node_name: str | None = None
    scheduler_name: str | None = None
    service_account_name: str | None = None
    restart_policy: str | None = None
    node_selector: dict[str, str] | None = None
    scheduling_gates: list[dict[str, Any]] | None = None
    containers: list[_Container] | None = None
    init_containers: list[_Container] | None = None
    volumes: list[_Volume] | None = None


class _Pod(_Shape, frozen=True):
    metadata: _Metadata | None = None
    spec: _Spec | None = None


class _Expression(_Shape, frozen=True):
    key: str = ""


class _Term(_Shape, frozen=True):
    match_expressions: list[_Expression] | None = None
    match_fields: list[_Expression] | None = None


class _Terms(_Shape, frozen=True):
    node_selector_terms: list[_Term] | None = None


class _Preference(_Shape, frozen=True):
    preference: _Term | None = None


class _NodeAffinity(_Shape, frozen=True):
    required: _Terms | None = msgspec.field(default=None, name=REQUIRED)
    preferred: list[_Preference] | None = msgspec.field(default=None, name=PREFERRED)


class _PodAntiAffinity(_Shape, frozen=True):
    preferred: list[dict[str, Any]] | None = msgspec.field(default=None, name=PREFERRED)


class _Affinity(_Shape, frozen=True):
    node_affinity: _NodeAffinity | None = None
    pod_anti_affinity: _PodAntiAffinity | None = None


def check_pod(pod: Mapping[str, Any]) -> None:
    """NotAPod if the object cannot be read as a pod, Unpatchable if its affinity cannot be."""
    if not isinstance(pod, dict):
        raise NotAPod("the object must be a v1 Pod")
    if pod.get("kind", "Pod") != "Pod" or pod.get("apiVersion", "v1") != "v1":
        raise NotAPod(f"the object must be a v1 Pod, not {pod.get('apiVersion')} {pod.get('kind')}")
    try:
        msgspec.convert(pod, _Pod)
    except msgspec.ValidationError as problem:
        raise NotAPod(sentence(problem, pod, "").removeprefix(".")) from None
    affinity = (pod.get("spec") or {}).get("affinity")
    try:
        msgspec.convert(affinity, _Affinity | None)
    except msgspec.ValidationError as problem:
        raise Unpatchable(sentence(problem, affinity, "spec.affinity")) from None


def _node_affinity(pod: Mapping[str, Any]) -> Mapping[str, Any]:
    found = ((pod.get("spec") or {}).get("affinity") or {}).get("nodeAffinity") or {}
    assert isinstance(found, dict)
    return found


def _child(tree: dict[str, Any], name: str) -> dict[str, Any]:
    """The object under a name; made where there is none."""
    if tree.get(name) is None:
        tree[name] = {}
    found = tree[name]
    assert isinstance(found, dict)
    return found


def _is_empty(term: Mapping[str, Any]) -> bool:
    return not term.get("matchExpressions") and not term.get("matchFields")


def _lacking(term: Mapping[str, Any], branch: Sequence[Expression]) -> Sequence[Expression]:
    """The expressions of a branch that a term does not have."""
    own = term.get("matchExpressions") or ()
    if len(own) * len(branch) <= FEW:
        return [each for each in branch if each not in own]
    present = {_canonical(each) for each in own}
    return [each for each in branch if _canonical(each) not in present]


def _joined(term: Mapping[str, Any], branch: Sequence[Expression]) -> dict[str, Any]:
    """A term with the expressions of a branch that it does not have yet, after its own."""
    added = [dict(each) for each in _lacking(term, branch)]
    return {**term, "matchExpressions": [*(term.get("matchExpressions") or ()), *added]} if added else dict(term)


_encode: Final = msgspec.json.Encoder(order="deterministic").encode


def _canonical(tree: Any) -> bytes:
    return _encode(tree)


def in_(key: str, *values: str) -> Expression:
    return {"key": key, "operator": "In", "values": list(values)}


def not_in(key: str, *values: str) -> Expression:
    return {"key": key, "operator": "NotIn", "values": list(values)}


def greater(key: str, than: int) -> Expression:
    return {"key": key, "operator": "Gt", "values": [str(than)]}
