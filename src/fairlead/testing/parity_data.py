"""Recorded answers of Fluid's admission webhook, compared with ours by the rules of tests/parity/data/README.md.

Everything goes through `data.mutate.mutate`, as in the webhook. What a vector marks as a defect of the original must
come out right, not alike: each mark has its own rule below.
"""

import copy
import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import msgspec
import yaml

from fairlead.data.draft import PREFERRED, REQUIRED
from fairlead.data.facts import DATASET_PREFIX, MANAGED_BY, REFERRING_NAME, REFERRING_NAMESPACE, Missing, Ref, Sources
from fairlead.data.mutate import MutateOptions, Mutation, PodReview, mutate
from fairlead.data.names import DATASET_NUM, EXCLUSIVE_KEYS, LONGEST_NAME, DatasetName, NoSuchKey
from fairlead.data.objects import CLAIMS, DAEMON_SETS, DATASETS, RUNTIMES, VOLUMES
from fairlead.data.plugins.file_prefetcher import BOOLEANS
from fairlead.data.profile import BadProfile, PluginProfile, parse
from fairlead.model.kinds import Kind

Vector = dict[str, Any]
_ALL: Final[tuple[Kind[Any], ...]] = (CLAIMS, DATASETS, DAEMON_SETS, VOLUMES, *RUNTIMES.values())
KINDS: Final = {kind.kind: kind for kind in _ALL}


def differences(vector: Vector, _folder: Path | None = None) -> Iterator[str]:
    if vector["category"] == "label_names":
        yield from _label_names(vector)
        return
    marks = set(vector.get("defects") or ())
    given, expected = vector["input"], vector["expect"]
    try:
        profile = parse(given["profile"])
    except BadProfile as problem:
        if "profile_error" not in expected and not _has_bad_weight(given["profile"]):
            yield f"profile: {problem}"
        return
    if "profile_error" in expected:
        yield f"profile: accepted; recorded {expected['profile_error']}"
        return
    answer = replay(given, profile)
    if "partial_mutation_admitted" in marks:
        yield from _refused_whole(answer, expected)
        return
    if "illegal_label_key" in marks:
        yield from illegal_keys(answer.pod)
        return
    if answer.allowed != expected["allowed"] or answer.code != expected["code"]:
        yield f"answer: {answer.allowed} {answer.code} {answer.message!r}, recorded {expected['code']} "
        yield f"    {expected.get('message')!r}"
        return
    if not answer.allowed:
        yield from _names_in(answer.message, expected.get("message", ""))
        return
    yield from _runs(answer, expected)
    yield from _side_objects(answer, expected)
    yield from _compare(vector, answer, marks)
    yield from second_pass(given, profile, answer)
    if any(each["op"] not in ("add", "replace") for each in answer.patch):
        yield f"patch: only add and replace are safe: {answer.patch}"
    if applied(_pod(given), answer.patch) != answer.pod:
        yield "patch: applied, it does not give the pod"


# -- the cluster of a vector ---------------------------------------------------------------------------------------


def replay(given: Vector, profile: PluginProfile, pod: Any = None) -> Mutation:
    """Our answer. Objects that the recorded cache lacked are found by the read that a Missing asks for."""
    objects = {}
    for group in ("pvcs", "datasets", "runtimes", "daemonsets", "pvs"):
        for each in given.get(group) or ():
            metadata = each["metadata"]
            kind = KINDS[each["kind"]]
            namespace = metadata.get("namespace", "") if kind.namespaced else ""
            objects[Ref(kind, namespace, metadata["name"])] = msgspec.convert(each, kind.struct)
    stale = set(given.get("cache_missing") or ())
    sources = Sources(lambda ref: None if f"{ref.kind.kind}/{ref.key}" in stale else objects.get(ref))
    environment = {**(given.get("process_env") or {}), **(given.get("env") or {})}
    options = MutateOptions(
        injects=not BOOLEANS.get(environment.get("DISABLE_INJECTION", ""), False),
        prefetcher_image=environment.get("FILE_PREFETCHER_IMAGE", ""),
        native_sidecars=environment.get("FUSE_SIDECAR_INJECTION_MODE") == "native-sidecar",
    )
    try:
        sent = _pod(given) if pod is None else pod
    except ValueError as problem:
        # A review with such an object is no JSON either: the webhook's server answers it.
        return Mutation(allowed=False, code=400, message=str(problem))
    review = PodReview(sent, given["request"].get("namespace", ""))
    while True:
        try:
            return mutate(review, sources, profile, options)
        except Missing as missing:
            for ref in missing.refs:
                sources.add(ref, objects.get(ref))


def _pod(given: Vector) -> Any:
    if "raw_pod" in given:
        return json.loads(given["raw_pod"])
    pod = copy.deepcopy(given["pod"])
    for path, value in (given.get("unknown_fields") or {}).items():
        *parents, last = path.split(".")
        tree = pod
        for name in parents:
            tree = tree[int(name)] if isinstance(tree, list) else tree[name]
        tree[last] = value
    return pod


# -- rules -----------------------------------------------------------------------------------------------------------


def _label_names(vector: Vector) -> Iterator[str]:
    given, expected = vector["input"], vector["expect"]
    name, runtime = DatasetName(given["namespace"], given["name"], given["uid"]), given["runtime"]
    keys: dict[str, Callable[[], str]] = {
        "common": name.common_key,
        "fuse": name.fuse_key,
        "runtime": lambda: name.runtime_key(runtime),
        "memory": lambda: name.quota_key(runtime, "m"),
        "disk": lambda: name.quota_key(runtime, "d"),
        "total": lambda: name.quota_key(runtime, "t"),
        "dataset_num": lambda: DATASET_NUM,
        "exclusive_key": lambda: EXCLUSIVE_KEYS[0],
        "exclusive_value": name.exclusive_value,
        "dataset_id": name.dataset_id,
        "pv": name.volume,
        "worker_statefulset": lambda: name.worker_set(runtime),
    }
    for what, recorded in expected.items():
        try:
            ours = keys[what]()
        except NoSuchKey:
            ours = ""
        legal = "/" not in recorded or len(recorded.rpartition("/")[2]) <= LONGEST_NAME
        if ours != (recorded if legal else ""):
            yield f"{what}: {ours!r}, recorded {recorded!r}"


def _has_bad_weight(text: str) -> bool:
    for entry in yaml.safe_load(text).get("pluginConfig") or ():
        arguments = yaml.safe_load(entry["args"])
        weights = [each.get("weight", 0) for each in arguments.get("preferred") or ()]
        if any(not 1 <= weight <= 100 for weight in weights):
            return True
    return False


def _refused_whole(answer: Mutation, expected: Vector) -> Iterator[str]:
    """A plugin failed: the sidecars' refuse the pod, in words that name the same things."""
    if answer.allowed or answer.patch:
        yield f"admitted although a plugin failed: {expected['swallowed_error']}"
    quoted = re.findall(r"file-prefetcher\.fluid\.io/[\w-]+|[\w.-]+-fuse\b|pv ([\w.-]+)|platform ([\w-]+)",
                        expected["swallowed_error"])  # fmt: skip
    for names in quoted:
        for name in [names] if isinstance(names, str) else names:
            if name and name not in answer.message:
                yield f"message: {answer.message!r} does not name {name}"


def illegal_keys(pod: Any) -> Iterator[str]:
    for key in _keys(pod):
        if len(key.rpartition("/")[2]) > LONGEST_NAME:
            yield f"illegal label key {key}"


def _keys(tree: Any) -> Iterator[str]:
    if isinstance(tree, dict):
        if "operator" in tree and "key" in tree:
            yield tree["key"]
        for value in tree.values():
            yield from _keys(value)
    elif isinstance(tree, list):
        for value in tree:
            yield from _keys(value)


def _names_in(message: str, recorded: str) -> Iterator[str]:
    """The objects that the recorded refusal is about are named by ours."""
    names = re.findall(r'"([\w./-]+)"', recorded)
    missing = re.search(r"failed to get the following PVCs \[(.*)\]$", recorded)
    names = missing[1].split() if missing else names[-1:]
    for name in names:
        if name.rpartition("/")[2] not in message:
            yield f"message: {message!r} does not name {name}"


def _runs(answer: Mutation, expected: Vector) -> Iterator[str]:
    last = max((each["pass"] for each in expected["runs"]), default=1)
    recorded = [each["plugin"] for each in expected["runs"] if each["pass"] == last]
    ours = [each.plugin for each in answer.runs]
    if ours != recorded:
        yield f"plugins: {ours}, recorded {recorded}"


def _side_objects(answer: Mutation, expected: Vector) -> Iterator[str]:
    ours = sorted("/".join(each) for each in answer.side_objects)
    recorded = sorted(expected.get("configmaps_created") or ())
    if ours != recorded:
        yield f"ConfigMaps: {ours}, recorded {recorded}"


def second_pass(given: Vector, profile: PluginProfile, answer: Mutation) -> Iterator[str]:
    second = replay(given, profile, copy.deepcopy(answer.pod))
    if second.patch or not second.allowed:
        yield f"second pass: {second.message or second.patch}"


def _compare(vector: Vector, answer: Mutation, marks: set[str]) -> Iterator[str]:
    """The pod, but for what a mark says of the original's."""
    given = vector["input"]
    ours, recorded = _canonical(answer.pod), copy.deepcopy(vector["expect"]["pod"])
    if "field_stripping" in marks:
        recorded = _with_unknown(recorded, given)
    keys = dict(_keys_of_references(given))
    if "reference_virtual_key" in marks:
        recorded = _physical_keys(recorded, keys)
    recorded = _canonical(recorded)
    if "wanted" in vector:
        nodes = vector["wanted"]["nodeAffinity"]
        terms = nodes.get("required")
        affinity = {
            **({REQUIRED: {"nodeSelectorTerms": terms}} if terms else {}),
            **({PREFERRED: nodes["preferred"]} if nodes.get("preferred") else {}),
        }
        recorded = _canonical(_with_node_affinity(recorded, affinity))
        ours = _canonical(_with_node_affinity(ours, _node_affinity(ours)))
    elif marks & {"required_terms_ored", "sched_label_matches_claim_name_only", "empty_own_terms_replaced"}:
        yield from _required(vector, answer, keys)
        # What is required no longer moves between the two; the preferences of the others stay.
        moved = "sched_label_matches_claim_name_only" in marks
        ours, recorded = _without_required(ours, moved), _without_required(recorded, moved)
    yield from pod_differences(ours, recorded)


def pod_differences(ours: Any, recorded: Any) -> Iterator[str]:
    for path, one, other in _differ(_canonical(ours), _canonical(recorded), ""):
        yield f"{path}: {json.dumps(one)}, recorded {json.dumps(other)}"


def _required(vector: Vector, answer: Mutation, keys: dict[str, str]) -> Iterator[str]:
    """Every term of the pod's own stays, with each required condition in it; a dead one stays dead."""
    pod = vector["input"]["pod"]
    own = (_node_affinity(pod).get(REQUIRED) or {}).get("nodeSelectorTerms") or []
    ours = (_node_affinity(answer.pod).get(REQUIRED) or {}).get("nodeSelectorTerms") or []
    alive = [term for term in own if term.get("matchExpressions") or term.get("matchFields")]
    if own and not alive:
        if ours != own:
            yield f"required: {ours}; terms without conditions must stay as they are"
        return
    recorded = (_node_affinity(vector["expect"]["pod"]).get(REQUIRED) or {}).get("nodeSelectorTerms") or []
    conditions = {
        keys.get(each["key"], each["key"])
        for term in recorded
        for each in term.get("matchExpressions") or ()
        if each["key"].startswith((DATASET_PREFIX, "fluid.io/f-"))
    }
    for term in ours:
        present = {each["key"] for each in term.get("matchExpressions") or ()}
        if conditions - present:
            yield f"required: {term} lacks {sorted(conditions - present)}"
        if alive and not any(_contains(term, each) for each in alive):
            yield f"required: {term} is none of the pod's own"


def _contains(term: Vector, own: Vector) -> bool:
    return all(each in (term.get("matchExpressions") or []) for each in own.get("matchExpressions") or ())


# -- the original's keys ---------------------------------------------------------------------------------------------


def _keys_of_references(given: Vector) -> Iterator[tuple[str, str]]:
    """The original's key of each dataset that only refers to another, and the other's."""
    uids = {
        (each["metadata"].get("namespace", ""), each["metadata"]["name"]): each["metadata"].get("uid", "")
        for each in given.get("datasets") or ()
    }
    for each in given.get("pvcs") or ():
        metadata = each["metadata"]
        labels = metadata.get("labels") or {}
        own = (metadata["namespace"], next((labels[key] for key in MANAGED_BY if labels.get(key)), metadata["name"]))
        target = (labels.get(REFERRING_NAMESPACE, ""), labels.get(REFERRING_NAME, ""))
        if not all(target):
            continue
        names = [DatasetName(*name, uids.get(name, "")) for name in (own, target)]
        try:
            yield names[0].common_key(), names[1].common_key()
            yield names[0].fuse_key(), names[1].fuse_key()
        except NoSuchKey:
            continue  # there is no legal one to compare with


def _physical_keys(tree: Any, keys: dict[str, str]) -> Any:
    if isinstance(tree, dict):
        swapped = {name: _physical_keys(value, keys) for name, value in tree.items()}
        if "operator" in swapped:
            swapped["key"] = keys.get(swapped.get("key", ""), swapped.get("key"))
        return swapped
    return [_physical_keys(each, keys) for each in tree] if isinstance(tree, list) else tree


# -- comparing -------------------------------------------------------------------------------------------------------


def _node_affinity(pod: Any) -> Any:
    return ((pod.get("spec") or {}).get("affinity") or {}).get("nodeAffinity") or {}


def _with_node_affinity(pod: Any, affinity: Any) -> Any:
    pod = copy.deepcopy(pod)
    pod["spec"].setdefault("affinity", {})["nodeAffinity"] = affinity
    return pod


def _without_required(pod: Any, and_preferred: bool) -> Any:
    affinity = {name: value for name, value in _node_affinity(pod).items() if name != REQUIRED}
    if and_preferred:
        affinity.pop(PREFERRED, None)
    return _with_node_affinity(pod, affinity)


def _with_unknown(pod: Any, given: Vector) -> Any:
    return _pod({"pod": pod, "unknown_fields": {
        path.replace("containers.0", _place(pod, given)): value for path, value in given["unknown_fields"].items()
    }})  # fmt: skip


def _place(pod: Any, given: Vector) -> str:
    """Where the first container is after others were put before it."""
    first = given["pod"]["spec"]["containers"][0]["name"]
    return f"containers.{[each['name'] for each in pod['spec']['containers']].index(first)}"


def _sorted(items: Any) -> Any:
    return sorted(items, key=lambda each: json.dumps(each, sort_keys=True))


def _term(term: Vector) -> Vector:
    return {name: _sorted(term[name]) for name in ("matchExpressions", "matchFields") if term.get(name)}


def _canonical(pod: Any) -> Any:
    """With everything sorted that the original takes from a map, and without what a typed decoder adds."""
    pod = copy.deepcopy(pod)
    spec = pod.get("spec") or {}
    node = _node_affinity(pod)
    if (node.get(REQUIRED) or {}).get("nodeSelectorTerms"):
        node[REQUIRED]["nodeSelectorTerms"] = _sorted(_term(term) for term in node[REQUIRED]["nodeSelectorTerms"])
    if node.get(PREFERRED):
        node[PREFERRED] = _sorted(
            {"weight": each["weight"], "preference": _term(each["preference"])} for each in node[PREFERRED]
        )
    for container in [*(spec.get("containers") or ()), *(spec.get("initContainers") or ())]:
        _sort_container(container)
    for volume in spec.get("volumes") or ():
        template = (volume.get("ephemeral") or {}).get("volumeClaimTemplate") or {}
        if not template.get("metadata"):
            template.pop("metadata", None)
    return pod


def _sort_container(container: Vector) -> None:
    if container.get("name") == "fluid-file-prefetcher":
        container["volumeMounts"] = _sorted(container.get("volumeMounts") or ())
        for each in container.get("env") or ():
            if each["name"] == "FILE_PREFETCHER_FILE_LIST":
                each["value"] = ";".join(sorted(each["value"].split(";")))
        container["env"] = _sorted(container.get("env") or ())
    start = ((container.get("lifecycle") or {}).get("postStart") or {}).get("exec") or {}
    for i, text in enumerate(start.get("command") or ()):
        words = text.split()
        if len(words) == 4 and words[1].endswith("check-fluid-mount-ready.sh"):
            pairs = sorted(zip(words[2].split(":"), words[3].split(":"), strict=True))
            paths, kinds = zip(*pairs, strict=True)
            start["command"][i] = " ".join([*words[:2], ":".join(paths), ":".join(kinds)])


def _differ(one: Any, other: Any, path: str) -> Iterator[tuple[str, Any, Any]]:
    if isinstance(one, dict) and isinstance(other, dict):
        for key in sorted({*one, *other}):
            if one.get(key) != other.get(key):
                yield from _differ(one.get(key), other.get(key), f"{path}/{key}")
    elif isinstance(one, list) and isinstance(other, list) and len(one) == len(other):
        for i, pair in enumerate(zip(one, other, strict=True)):
            if pair[0] != pair[1]:
                yield from _differ(*pair, f"{path}/{i}")
    elif one != other and (one or other):
        yield path, one, other


def applied(pod: Any, patch: Any) -> Any:
    """The pod after the patch, by the letter of RFC 6902 (add and replace)."""
    tree = {"": copy.deepcopy(pod)}
    for each in patch:
        parts = [part.replace("~1", "/").replace("~0", "~") for part in each["path"].split("/")]
        parent: Any = tree
        for part in parts[:-1]:
            parent = parent[int(part)] if isinstance(parent, list) else parent[part]
        last = parts[-1]
        if isinstance(parent, list):
            index = int(last)
            if each["op"] == "add":
                parent.insert(index, each["value"])
            else:
                parent[index] = each["value"]
        else:
            if each["op"] == "replace" and last not in parent:
                raise KeyError(each["path"])
            parent[last] = each["value"]
    return tree[""]
