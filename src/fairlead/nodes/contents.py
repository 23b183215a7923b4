"""Fetches what environments and volumes refer to: ConfigMaps, Secrets, service-account tokens, claimed volumes.

Used by `nodes.controller` for providers that run things for real. What was fetched is remembered for seconds, tokens
for most of their life, and never more than a bounded number.
"""

from collections import OrderedDict
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import msgspec

from fairlead.cluster.client import Client
from fairlead.cluster.clock import Clock
from fairlead.model.kinds import Kind
from fairlead.model.meta import ApiStruct
from fairlead.model.quantity import Quantity
from fairlead.model.times import parse_time_or_none
from fairlead.nodes.env import Missing, Sources
from fairlead.nodes.spec import CLAIMS, CONFIG_MAPS, SECRETS, VOLUMES, KubeletPod, PersistentVolume
from fairlead.nodes.volumes import Needs

# Long enough for the containers of a rollout to share one read, short enough for a correction to be seen.
FRESH_S = 2.0
MOST_REMEMBERED = 10_000
# A token is renewed when this much of its life is over, as the kubelet does.
TOKEN_LIFE = 0.8

ServiceEnv = Callable[[str], Mapping[str, str]]
"""Namespace → variables with the addresses of its Services."""


class TokenStatus(ApiStruct):
    token: str = ""
    expiration_timestamp: str | None = None


class TokenAnswer(ApiStruct):
    status: TokenStatus = TokenStatus()


class Contents:
    def __init__(self, client: Client, *, clock: Clock, service_env: ServiceEnv | None = None) -> None:
        self._client = client
        self._clock = clock
        self._service_env = service_env or (lambda namespace: {})
        self._remembered: OrderedDict[tuple[str, ...], tuple[Any, float]] = OrderedDict()  # what, and until when

    async def sources(
        self, pod: KubeletPod, needs: Needs, *, pod_ip: str, host_ip: str, allocatable: Mapping[str, Quantity]
    ) -> Sources:
        namespace = pod.metadata.namespace
        maps = {name: await self._object(CONFIG_MAPS, namespace, name) for name in sorted(needs.config_maps)}
        secrets = {name: await self._object(SECRETS, namespace, name) for name in sorted(needs.secrets)}
        tokens = {key: await self._token(pod, *key) for key in sorted(needs.tokens)}
        claims = {name: await self._claimed(namespace, name) for name in sorted(needs.claims)}
        links = pod.spec.enable_service_links is not False
        return Sources(
            config_maps=maps,
            secrets=secrets,
            tokens=tokens,
            claims=claims,
            services=self._service_env(namespace) if links else {},
            pod_ip=pod_ip,
            host_ip=host_ip,
            allocatable=allocatable,
        )

    def forget(self, pod: KubeletPod) -> None:
        """Its tokens are of no more use."""
        for key in [key for key in self._remembered if key[0] == "token" and key[1] == pod.uid]:
            del self._remembered[key]

    async def _object(self, kind: Kind[Any], namespace: str, name: str) -> Any:
        async def read() -> tuple[Any, float]:
            return await self._client.find(kind, name, namespace), self._clock.elapsed_s() + FRESH_S

        return await self._remember((kind.plural, namespace, name), read)

    async def _claimed(self, namespace: str, name: str) -> PersistentVolume | str:
        claim = await self._object(CLAIMS, namespace, name)
        if claim is None:
            return f'persistentvolumeclaim "{name}" not found'
        volume_name = claim.spec.volume_name
        volume: PersistentVolume | None = await self._object(VOLUMES, "", volume_name) if volume_name else None
        return volume if volume is not None else f'persistentvolumeclaim "{name}" is not bound to a volume yet'

    async def _token(self, pod: KubeletPod, audience: str, life_s: int) -> str:
        account = pod.spec.service_account_name
        if not account:
            raise Missing("a projected volume needs a service-account token and the pod has no service account")

        async def request() -> tuple[str, float]:
            spec: dict[str, Any] = {
                "expirationSeconds": life_s,
                "boundObjectRef": {"apiVersion": "v1", "kind": "Pod", "name": pod.metadata.name, "uid": pod.uid},
            }
            if audience:
                spec["audiences"] = [audience]
            body = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": spec}
            path = f"/api/v1/namespaces/{pod.metadata.namespace}/serviceaccounts/{account}/token"
            answer = msgspec.json.decode(await self._client.request("POST", path, body=body), type=TokenAnswer)
            expires = parse_time_or_none(answer.status.expiration_timestamp)
            left_s = (expires - self._clock.now()).total_seconds() if expires is not None else float(life_s)
            return answer.status.token, self._clock.elapsed_s() + left_s * TOKEN_LIFE

        token: str = await self._remember(("token", pod.uid, account, audience, str(life_s)), request)
        return token

    async def _remember(self, key: tuple[str, ...], read: Callable[[], Awaitable[tuple[Any, float]]]) -> Any:
        value, until_s = self._remembered.get(key, (None, 0.0))
        if until_s > self._clock.elapsed_s():
            return value
        self._remembered[key] = known = await read()
        self._remembered.move_to_end(key)
        while len(self._remembered) > MOST_REMEMBERED:
            self._remembered.popitem(last=False)
        return known[0]
