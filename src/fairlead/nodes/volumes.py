"""What the volumes of a pod hold, as folders of files.

Pure: which objects are needed, and what they become. Writing the folders is the provider's.
"""

from dataclasses import dataclass, field

from fairlead.nodes.env import Missing, Sources, config_map_keys, pod_field, resource_field, secret_keys
from fairlead.nodes.provider import File, Folder
from fairlead.nodes.spec import DownwardVolume, KeysVolume, KubeletPod, Projection, Volume

DEFAULT_MODE = 0o644
# Secrets and tokens are for who runs the pod alone, whatever mode is asked for.
OWNER_ONLY = 0o700


@dataclass(slots=True)
class Needs:
    """Names of what must be fetched before environment and volumes can be filled."""

    config_maps: set[str] = field(default_factory=set)
    secrets: set[str] = field(default_factory=set)
    tokens: set[tuple[str, int]] = field(default_factory=set)
    claims: set[str] = field(default_factory=set)

    @property
    def any(self) -> bool:
        """Whether any of it may be another tomorrow; what a claim is bound to stays."""
        return bool(self.config_maps or self.secrets or self.tokens)


def volume_needs(pod: KubeletPod) -> Needs:
    needs = Needs()
    for volume in pod.spec.volumes or ():
        if name := claim_name(pod, volume):
            needs.claims.add(name)
        for part in _parts(volume):
            if part.config_map is not None:
                needs.config_maps.add(part.config_map.name)
            if part.secret is not None:
                needs.secrets.add(_secret_name(part.secret))
            if isinstance(part, Projection) and (token := part.service_account_token) is not None:
                needs.tokens.add((token.audience, token.expiration_seconds))
    return needs


def _parts(volume: Volume) -> tuple[Volume | Projection, ...]:
    """What fills a volume: the sources of a projected one, and what a plain one names itself."""
    return (volume.projected.sources or ()) if volume.projected is not None else (volume,)


def _secret_name(secret: KeysVolume) -> str:
    return secret.secret_name or secret.name


def claim_name(pod: KubeletPod, volume: Volume) -> str:
    if volume.persistent_volume_claim is not None:
        return volume.persistent_volume_claim.claim_name
    return f"{pod.metadata.name}-{volume.name}" if volume.ephemeral is not None else ""


def env_needs(pod: KubeletPod) -> Needs:
    needs = Needs()
    for container in pod.all_containers:
        for whole in container.env_from or ():
            if whole.config_map_ref is not None:
                needs.config_maps.add(whole.config_map_ref.name)
            if whole.secret_ref is not None:
                needs.secrets.add(whole.secret_ref.name)
        for variable in container.env or ():
            if (source := variable.value_from) is None:
                continue
            if source.config_map_key_ref is not None:
                needs.config_maps.add(source.config_map_key_ref.name)
            if source.secret_key_ref is not None:
                needs.secrets.add(source.secret_key_ref.name)
    return needs


def pod_volumes(pod: KubeletPod, sources: Sources) -> dict[str, Folder]:
    return {volume.name: _folder(pod, volume, sources) for volume in pod.spec.volumes or ()}


def _folder(pod: KubeletPod, volume: Volume, sources: Sources) -> Folder:
    if volume.empty_dir is not None:
        return Folder()
    if volume.host_path is not None:
        return Folder(host_path=volume.host_path.path, host_type=volume.host_path.type)
    if name := claim_name(pod, volume):
        return _claimed(name, volume, sources)
    of_files = volume.projected or volume.config_map or volume.secret or volume.downward_api
    if of_files is None:
        raise Missing(
            f"volume {volume.name!r} is of a kind that virtual nodes do not have; there are emptyDir, configMap, "
            "secret, downwardAPI, projected, hostPath and persistentVolumeClaim"
        )
    files: dict[str, File] = {}
    for part in _parts(volume):
        files |= _files(pod, part, sources, of_files.default_mode)
    return Folder(files=files)


def _files(pod: KubeletPod, part: Volume | Projection, sources: Sources, mode: int | None) -> dict[str, File]:
    files: dict[str, File] = {}
    if (found := part.config_map) is not None:
        files |= _keys(found, config_map_keys(sources, found.name, optional=found.optional), mode)
    if (found := part.secret) is not None:
        files |= _secret(_keys(found, secret_keys(sources, _secret_name(found), optional=found.optional), mode))
    if part.downward_api is not None:
        files |= _downward(pod, part.downward_api, sources, mode)
    if isinstance(part, Projection) and (projection := part.service_account_token) is not None:
        token = sources.tokens.get((projection.audience, projection.expiration_seconds))
        if token is None:
            raise Missing(f"no token of service account {pod.spec.service_account_name!r} is available")
        files |= _secret({_safe(projection.path): File(token.encode(), mode or DEFAULT_MODE)})
    return files


def _claimed(name: str, volume: Volume, sources: Sources) -> Folder:
    found = sources.claims.get(name, f'persistentvolumeclaim "{name}" not found')
    if isinstance(found, str):
        raise Missing(found)
    if not found.path:
        kinds = "virtual nodes have those of hostPath and local"
        raise Missing(f"volume {found.metadata.name!r} of claim {name!r} is of a kind that is not there: {kinds}")
    is_read_only = volume.persistent_volume_claim is not None and volume.persistent_volume_claim.read_only
    return Folder(host_path=found.path, is_read_only=is_read_only, is_claim=True)


def _secret(files: dict[str, File]) -> dict[str, File]:
    return {path: File(file.content, file.mode & OWNER_ONLY) for path, file in files.items()}


def _keys(volume: KeysVolume, keys: dict[str, bytes] | None, default_mode: int | None) -> dict[str, File]:
    mode = default_mode if default_mode is not None else DEFAULT_MODE
    if keys is None:
        return {}
    if volume.items is None:
        return {_safe(key): File(value, mode) for key, value in keys.items()}
    files = {}
    for item in volume.items:
        if item.key in keys:
            files[_safe(item.path)] = File(keys[item.key], mode if item.mode is None else item.mode)
        elif not volume.optional:
            raise Missing(f"references non-existent key: {item.key} of {volume.name or volume.secret_name}")
    return files


def _downward(pod: KubeletPod, volume: DownwardVolume, sources: Sources, default_mode: int | None) -> dict[str, File]:
    mode = default_mode if default_mode is not None else DEFAULT_MODE
    files = {}
    for item in volume.items or ():
        if item.field_ref is not None:
            text = pod_field(pod, item.field_ref.field_path, sources)
        elif item.resource_field_ref is not None:
            text = resource_field(pod, None, item.resource_field_ref, sources)
        else:
            continue
        files[_safe(item.path)] = File(text.encode(), mode if item.mode is None else item.mode)
    return files


def _safe(path: str) -> str:
    """A path that stays inside its volume; the API server refuses others, and so do we."""
    parts = path.split("/")
    if not path or path.startswith("/") or ".." in parts:
        raise Missing(f"the path {path!r} leads out of its volume")
    return path
