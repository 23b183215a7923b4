"""What is known of the datasets that a pod mounts: its claims resolved to datasets, runtimes and their node rules.

Objects come from mirrors. One that is not there raises Missing, and the shell reads it once from the API server; what
the server does not have either, or what is not ready, raises Unready, whose sentence refuses the pod.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from fairlead.data.names import DatasetName
from fairlead.data.objects import CLAIMS, DATASETS, RUNTIMES, Claim, Component, Dataset, FluidRuntime
from fairlead.model.kinds import Kind, split_key

DATASET_PREFIX: Final = "fluid.io/s-"
MANAGED_BY: Final = ("fluid.io/managed-by", "fluid.io/wrapped-by")
REFERRING_NAME: Final = "fluid.io/dataset.referring-name"
REFERRING_NAMESPACE: Final = "fluid.io/dataset.referring-namespace"
SKIP_PRECHECK: Final = "sidecar.fluid.io/skip-precheck"
NOT_BOUND: Final = ("", "NotBound")
REFERENCE_SCHEME: Final = "dataset://"
MOST_REFERENCES: Final = 8
"""Steps from a dataset that only refers to another, to the one that has the data."""


class Ref(NamedTuple):
    """One object, by its kind."""

    kind: Kind[Any]
    namespace: str
    name: str

    @property
    def key(self) -> str:
        return f"{self.namespace}/{self.name}" if self.namespace else self.name


class Missing(Exception):
    """Objects that no mirror has; the API server may."""

    def __init__(self, refs: Sequence[Ref]) -> None:
        super().__init__(", ".join(f"{ref.kind.kind} {ref.key}" for ref in refs))
        self.refs = tuple(refs)


class Unready(Exception):
    """A claim, dataset or runtime does not exist or cannot be used yet: the pod is refused with this sentence."""


class Sources:
    """Objects of the cluster: from mirrors, and those that were read because no mirror had them (None: not there)."""

    def __init__(self, mirrored: Callable[[Ref], Any]) -> None:
        self._mirrored = mirrored
        self._live: dict[Ref, Any] = {}

    def get(self, ref: Ref) -> Any:
        """The object, or None if the API server does not have it; Missing if only the mirror does not."""
        found = self._mirrored(ref)
        if found is not None:
            return found
        if ref in self._live:
            return self._live[ref]
        raise Missing([ref])

    def glance(self, ref: Ref) -> Any:
        """The object if a mirror has it, else None."""
        return self._mirrored(ref) or self._live.get(ref)

    def has(self, ref: Ref) -> bool:
        return self._mirrored(ref) is not None

    def add(self, ref: Ref, found: Any) -> None:
        self._live[ref] = found


@dataclass(frozen=True, slots=True)
class DatasetFacts:
    """A dataset of a pod, by the claim that the pod mounts."""

    claim: str
    dataset: DatasetName
    """As the claim names it; its runtime has the same name."""
    physical: DatasetName
    """Whose workers hold the data: another one where the dataset only refers to it."""
    runtime: str
    fuse_selector: Mapping[str, str]
    declared: tuple[Mapping[str, Any], ...]
    """The nodeSelectorTerms that the workers were declared with."""
    is_mirrored: bool = True
    """Whether the runtime's declaration is known from a mirror, and not only by a read of this review."""
    scrapes_sidecars: bool = False
    """Whether Prometheus reads the metrics of fuses in sidecars."""
    phase: str = ""

    @property
    def fuse_set(self) -> str:
        """The DaemonSet of its fuse."""
        return fuse_set(self.dataset.name, self.runtime)


def fuse_set(name: str, runtime: str) -> str:
    """The DaemonSet of a fuse; a CacheRuntime's is named after its component, as all of them are."""
    return name + {"jindo": "-jindofs-fuse", "cache": "-client"}.get(runtime, "-fuse")


def claim_names(spec: Mapping[str, Any]) -> list[str]:
    """The claims a pod's volumes name, each once, in their order; those of ephemeral volumes are not among them."""
    found = (volume.get("persistentVolumeClaim") for volume in spec.get("volumes") or ())
    names = (claim.get("claimName") for claim in found if isinstance(claim, dict))
    return list(dict.fromkeys(name for name in names if isinstance(name, str) and name))


def collect(
    spec: Mapping[str, Any], annotations: Mapping[str, str], namespace: str, sources: Sources
) -> tuple[DatasetFacts, ...]:
    """The datasets of a pod, sorted by claim."""
    unread, absent, claims = [], [], []
    for name in claim_names(spec):
        ref = Ref(CLAIMS, namespace, name)
        try:
            found: Claim | None = sources.get(ref)
        except Missing:
            unread.append(ref)
            continue
        if found is None:
            absent.append(name)
        else:
            claims.append((name, found))
    if unread:
        raise Missing(unread)
    precheck = annotations.get(SKIP_PRECHECK) != "true"
    facts = [_facts(name, claim, namespace, sources, precheck) for name, claim in claims if is_managed(claim)]
    if absent:
        raise Unready(
            f"claims of the pod do not exist in namespace {namespace}: {', '.join(absent)}; create them first"
        )
    return tuple(sorted(facts, key=lambda each: each.claim))


def is_managed(claim: Claim) -> bool:
    """Only keys count: a dataset's label may have any value."""
    return any(key.startswith(DATASET_PREFIX) or key in MANAGED_BY for key in claim.metadata.labels)


def dataset_of(name: str, claim: Claim) -> str:
    """The name of the dataset behind a claim: a claim that wraps a dataset has another name."""
    labels = claim.metadata.labels
    return next((labels[key] for key in MANAGED_BY if labels.get(key)), name)


def _facts(claim: str, found: Claim, namespace: str, sources: Sources, precheck: bool) -> DatasetFacts:
    name = dataset_of(claim, found)
    dataset: Dataset | None = sources.get(Ref(DATASETS, namespace, name))
    if dataset is None:
        raise Unready(f"claim {claim}: there is no Dataset {namespace}/{name}; create it first")
    if precheck and dataset.status.phase in NOT_BOUND:
        raise Unready(f"claim {claim}: Dataset {namespace}/{name} is not bound{_why_not_ready(dataset)}")
    kind = dataset.runtime_type
    if kind not in RUNTIMES:
        known = ", ".join(RUNTIMES)
        what = f"is of the unknown type {kind!r}; known are {known}" if kind else "is not known yet"
        raise Unready(f"claim {claim}: the runtime of Dataset {namespace}/{name} {what}")
    runtime: FluidRuntime | None = sources.get(Ref(RUNTIMES[kind], namespace, name))
    if runtime is None:
        raise Unready(f"claim {claim}: there is no {RUNTIMES[kind].kind} {namespace}/{name}; create it first")
    own = DatasetName(namespace, name, dataset.metadata.uid)
    physical, declared_by = _physical(own, found, dataset, runtime, sources)
    fuse = runtime.spec.client if kind == "cache" else runtime.spec.fuse
    return DatasetFacts(
        claim=claim,
        dataset=own,
        physical=physical,
        runtime=kind,
        fuse_selector=(fuse.node_selector if fuse is not None and kind != "vineyard" else None) or {},
        declared=tuple(_declared_terms(declared_by)),
        is_mirrored=sources.has(Ref(RUNTIMES[kind], namespace, name)),
        scrapes_sidecars=kind == "jindo" and _scrapes_sidecars(fuse),
        phase=dataset.status.phase,
    )


def _scrapes_sidecars(fuse: Component | None) -> bool:
    """By a list of mount modes, in which `All` and `None` end the list."""
    modes = fuse.metrics.scrape_target.split(",") if fuse is not None and fuse.metrics is not None else []
    return next((mode != "None" for mode in modes if mode in ("All", "Sidecar", "None")), False)


def _why_not_ready(dataset: Dataset) -> str:
    found = [each.message for each in dataset.status.conditions or () if each.type == "NotReady" and each.message]
    return f": {found[0]}" if found else ""


def _physical(
    own: DatasetName, claim: Claim, dataset: Dataset, runtime: FluidRuntime, sources: Sources
) -> tuple[DatasetName, FluidRuntime]:
    """Where the data is, and the runtime that declares its workers' nodes: of a reference, those it leads to."""
    first = referring(claim) or reference_of(dataset)
    if not first:
        return own, runtime

    def find(key: str) -> Dataset | None:
        found: Dataset | None = sources.get(Ref(DATASETS, *split_key(key)))
        return found

    namespace, name = split_key(root_of(first, find))
    target = find(f"{namespace}/{name}")
    if target is None:
        return DatasetName(namespace, name), runtime
    kind = target.runtime_type
    theirs = sources.glance(Ref(RUNTIMES[kind], namespace, name)) if kind in RUNTIMES else None
    return DatasetName(namespace, name, target.metadata.uid), theirs or runtime


def referring(claim: Claim) -> str:
    """The dataset (namespace/name) that a claim's labels refer to, or nothing."""
    namespace, name = (claim.metadata.labels.get(key, "") for key in (REFERRING_NAMESPACE, REFERRING_NAME))
    return f"{namespace}/{name}" if namespace and name else ""


def reference_of(dataset: Dataset) -> str:
    """The dataset (namespace/name) that this one refers to by a mount, or nothing."""
    points = (each.mount_point for each in dataset.spec.mounts or ())
    point = next((each for each in points if each.startswith(REFERENCE_SCHEME)), "")
    namespace, _, rest = point.removeprefix(REFERENCE_SCHEME).partition("/")
    name = rest.partition("/")[0]
    return f"{namespace}/{name}" if namespace and name else ""


def root_of(key: str, find: Callable[[str], Dataset | None]) -> str:
    """Where references lead from a dataset. A circle, or too long a way, ends where it is noticed."""
    passed = {key}
    for _ in range(MOST_REFERENCES):
        found = find(key)
        following = reference_of(found) if found is not None else ""
        if not following or following in passed:
            break
        key = following
        passed.add(key)
    return key


def _declared_terms(runtime: FluidRuntime) -> Iterator[Mapping[str, Any]]:
    affinity = runtime.status.cache_affinity
    required = affinity.required_during_scheduling_ignored_during_execution if affinity else None
    yield from (required.node_selector_terms if required else None) or ()
