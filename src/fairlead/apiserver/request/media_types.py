"""The media types of bodies: of objects, and of patches."""

from typing import Final

JSON: Final = "application/json"
YAML: Final = "application/yaml"
PROTOBUF: Final = "application/vnd.kubernetes.protobuf"
OBJECTS: Final = (JSON, YAML, PROTOBUF)

JSON_PATCH: Final = "application/json-patch+json"
MERGE_PATCH: Final = "application/merge-patch+json"
STRATEGIC_MERGE_PATCH: Final = "application/strategic-merge-patch+json"
APPLY_PATCH: Final = "application/apply-patch+yaml"
PATCHES: Final = (JSON_PATCH, MERGE_PATCH, STRATEGIC_MERGE_PATCH, APPLY_PATCH)
PATCHES_OF_CUSTOM_KINDS: Final = (JSON_PATCH, MERGE_PATCH, APPLY_PATCH)
