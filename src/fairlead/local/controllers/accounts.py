"""What every namespace is given: the `default` ServiceAccount, and the authority that signed the API server."""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from fairlead.cluster.controller import Controller
from fairlead.cluster.mirror import Delta
from fairlead.local.controllers.mirrors import ControllerContext
from fairlead.local.controllers.spec import NAMESPACES, ROOT_CAS, SERVICE_ACCOUNTS, Namespace
from fairlead.model.intents import Create, Intent, patch
from fairlead.model.kinds import ConfigMap

DEFAULT: Final = "default"
ROOT_CA: Final = "kube-root-ca.crt"
NOTE: Final = {
    "kubernetes.io/description": "Contains a CA bundle that can be used to verify the kube-apiserver when using "
    "internal endpoints such as the internal service IP or kubernetes.default.svc. No other usage is guaranteed "
    "across distributions of Kubernetes clusters."
}


@dataclass(frozen=True, slots=True)
class NamespaceDefaultsInput:
    namespace: Namespace
    has_account: bool
    authority: ConfigMap | None
    root_ca: str  # nothing is written without one


def plan_home(seen: NamespaceDefaultsInput, now: datetime) -> list[Intent]:
    name = seen.namespace.metadata.name
    if seen.namespace.is_terminating:
        return []
    intents: list[Intent] = []
    if not seen.has_account:
        body = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": DEFAULT, "namespace": name}}
        intents.append(Create(kind=SERVICE_ACCOUNTS, namespace=name, body=body))
    desired = {"ca.crt": seen.root_ca}
    if seen.root_ca and seen.authority is None:
        metadata = {"name": ROOT_CA, "namespace": name, "annotations": NOTE}
        made = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": desired}
        intents.append(Create(kind=ROOT_CAS, namespace=name, body=made))
    elif seen.root_ca and seen.authority is not None and seen.authority.data != desired:
        stray: dict[str, Any] = dict.fromkeys(seen.authority.data)
        intents.append(patch(ROOT_CAS, seen.authority.metadata, {"data": {**stray, **desired}}))
    return intents


def namespace_defaults_controller(context: ControllerContext) -> Controller:
    root_ca, authority = context.options.root_ca, {"fieldSelector": f"metadata.name={ROOT_CA}"}
    authorities = context.mirrors.add(ROOT_CAS, selectors=authority)
    namespaces, accounts = context.mirrors.of(NAMESPACES), context.mirrors.of(SERVICE_ACCOUNTS)

    def see(key: str) -> NamespaceDefaultsInput | None:
        namespace = namespaces.get(key)
        if namespace is None:
            return None
        has_account = accounts.get(f"{key}/{DEFAULT}") is not None
        return NamespaceDefaultsInput(namespace, has_account, authorities.get(f"{key}/{ROOT_CA}"), root_ca)

    def of_namespace(delta: Delta[Any]) -> Iterable[str]:
        """Its namespace, where one of the two has gone or changed."""
        name = delta.key.rpartition("/")[2]
        return (delta.key.rpartition("/")[0],) if name in (DEFAULT, ROOT_CA) else ()

    return (
        context.controller(NAMESPACES, see, plan_home, name="homes")
        .watches(namespaces)
        .watches(accounts, of_namespace)
        .watches(authorities, of_namespace)
    )
