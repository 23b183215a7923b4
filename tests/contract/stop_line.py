"""How far answers must be alike: decisions/0010-stop-line-for-parity.md.

Status code, reason and field of a refusal everywhere; texts only for kinds that something in Fairlead acts on.
"""

from collections.abc import Mapping
from typing import Any, Final

# Kinds that the embedded server keeps and that nothing in Fairlead acts on; a test asks that it stays so.
KEPT_ONLY: Final = frozenset(
    {
        "DeviceClass",
        "Endpoints",
        "IPAddress",
        "Ingress",
        "IngressClass",
        "LimitRange",
        "NetworkPolicy",
        "PodTemplate",
        "ResourceClaim",
        "ResourceClaimTemplate",
        "ResourceQuota",
        "ResourceSlice",
        "RuntimeClass",
        "ServiceCIDR",
        "VolumeAttributesClass",
    }
)


def compared(kind: str, answer: Mapping[str, Any]) -> Mapping[str, Any]:
    """The part of an answer about an object of this kind that must be alike."""
    if kind not in KEPT_ONLY:
        return answer
    headers = {**answer["headers"], "Warning": len(answer["headers"].get("Warning", ()))}
    return {**answer, "headers": headers, "body": _without_texts(answer["body"])}


def _without_texts(body: Any) -> Any:
    if not isinstance(body, dict) or body.get("kind") != "Status":
        return body
    details = body.get("details") or {}
    causes = sorted({(each.get("reason", ""), each.get("field", "")) for each in details.get("causes") or ()})
    return {**body, "message": "", "details": {**details, "causes": causes}}
