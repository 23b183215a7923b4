"""What is asked of kinds with hardly any rules: events, revisions, runtime classes, storage's helpers, templates."""

from fairlead.local.objects.rules import metadata, names
from fairlead.local.objects.rules.errors import Errors, Json, immutable, invalid, nonnegative, not_supported, required
from fairlead.local.objects.rules.pods import template


def event(obj: Json) -> Errors:
    found = metadata.on_create(obj["metadata"], True, names.path_segment, core=False)
    if "involvedObject" not in obj:
        return found
    about = (obj["involvedObject"] or {}).get("namespace", "")
    space = obj["metadata"].get("namespace", "")
    # What concerns something without a namespace is told in `default`.
    if about != space and not (not about and space == "default"):
        found.append(invalid("involvedObject.namespace", about, "does not match event.namespace"))
    return found


def controller_revision(obj: Json) -> Errors:
    found = metadata.on_create(obj["metadata"], True, names.subdomain)
    found += nonnegative("revision", obj.get("revision"))
    data = obj.get("data")
    if data is None:
        found.append(required("data", "data is mandatory"))
    elif not isinstance(data, dict):
        found.append(required("data", "data must be a valid JSON object"))
    return found


def controller_revision_update(new: Json, old: Json) -> Errors:
    found = metadata.on_update(new["metadata"], old["metadata"])
    return [*found, *immutable("data", new.get("data"), old.get("data"))]


def runtime_class(obj: Json) -> Errors:
    found = metadata.on_create(obj["metadata"], False, names.subdomain, core=False)
    handler = obj.get("handler", "")
    if not handler:
        return [*found, required("handler")]
    return [*found, *(invalid("handler", handler, text) for text in names.label(handler))]


def runtime_class_update(new: Json, old: Json) -> Errors:
    found = metadata.on_update(new["metadata"], old["metadata"])
    return [*found, *immutable("handler", new.get("handler"), old.get("handler"))]


def pod_template(obj: Json) -> Errors:
    found = metadata.on_create(obj["metadata"], True, names.subdomain)
    return [*found, *template(obj.get("template") or {}, "template")]


def pod_template_update(new: Json, old: Json) -> Errors:
    return [*metadata.on_update(new["metadata"], old["metadata"]), *template(new.get("template") or {}, "template")]


def csi_node(obj: Json) -> Errors:
    found = metadata.on_create(obj["metadata"], False, names.subdomain)
    for index, driver in enumerate((obj.get("spec") or {}).get("drivers") or ()):
        found += [required(f"spec.drivers[{index}].{key}") for key in ("name", "nodeID") if not driver.get(key)]
    return found


def csi_driver(obj: Json) -> Errors:
    found = metadata.on_create(obj["metadata"], False, names.subdomain)
    for mode in (obj.get("spec") or {}).get("volumeLifecycleModes") or ():
        if mode not in ("Persistent", "Ephemeral"):
            found.append(not_supported("spec.volumeLifecycleModes", mode, ("Persistent", "Ephemeral")))
    return found


def volume_attachment(obj: Json) -> Errors:
    found = metadata.on_create(obj["metadata"], False, names.subdomain)
    spec = obj.get("spec") or {}
    if not spec.get("attacher"):
        found.append(required("spec.attacher"))
    source = spec.get("source") or {}
    if len(source) != 1:
        text = "must specify exactly one of inlineVolumeSpec and persistentVolumeName"
        found.append(required("spec.source", text))
    name = spec.get("nodeName", "")
    return [*found, *(invalid("spec.nodeName", name, text) for text in names.subdomain(name))]


def volume_attachment_update(new: Json, old: Json) -> Errors:
    found = metadata.on_update(new["metadata"], old["metadata"])
    return [*found, *immutable("spec", new.get("spec"), old.get("spec"))]


def storage_capacity(obj: Json) -> Errors:
    found = metadata.on_create(obj["metadata"], True, names.subdomain)
    name = obj.get("storageClassName", "")
    return [*found, *(invalid("storageClassName", name, text) for text in names.subdomain(name))]
