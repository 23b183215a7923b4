"""Authentication and authorization of callers, both by the cluster: TokenReview and SubjectAccessReview.

A bearer token goes to a TokenReview, an action to a SubjectAccessReview, so that a caller of ours can do through us
what the cluster's own roles allow them and nothing else. Answers are kept for some seconds; tokens never are, only
their digests.
"""

import hashlib
from collections import OrderedDict
from collections.abc import Hashable
from typing import Any, Generic, TypeVar

import msgspec

from fairlead.cluster.client import Client
from fairlead.cluster.clock import Clock
from fairlead.model.kinds import Kind
from fairlead.model.meta import ApiStruct
from fairlead.web.limits import Limits
from fairlead.web.problems import Problem, unauthorized

V = TypeVar("V")

# Short: a role that is taken away, a token that is revoked must count soon.
KEPT_S = 10.0
MOST_KEPT = 4096
# Tokens nobody knows, per address: each costs the cluster a review.
UNKNOWN_PER_S, UNKNOWN_BURST = 5.0, 20


class User(ApiStruct, frozen=True):
    """Who the cluster says the caller is."""

    username: str = ""
    uid: str = ""
    groups: tuple[str, ...] | None = None
    extra: dict[str, tuple[str, ...]] | None = None


class Action(msgspec.Struct, frozen=True):
    """Something done to a resource of the cluster, as roles name it."""

    verb: str
    resource: str
    group: str = ""
    namespace: str = ""
    name: str = ""
    subresource: str = ""

    def described(self) -> str:
        what = f"{self.resource}.{self.group}" if self.group else self.resource
        what += f"/{self.subresource}" if self.subresource else ""
        what += f" {self.name!r}" if self.name else ""
        return f"{self.verb} {what}" + (f" in namespace {self.namespace!r}" if self.namespace else "")


class TokenStatus(ApiStruct, frozen=True):
    authenticated: bool = False
    user: User = User()
    audiences: tuple[str, ...] | None = None
    error: str = ""


class TokenReview(ApiStruct, frozen=True):
    status: TokenStatus = TokenStatus()


class AccessStatus(ApiStruct, frozen=True):
    allowed: bool = False
    denied: bool = False
    reason: str = ""


class AccessReview(ApiStruct, frozen=True):
    status: AccessStatus = AccessStatus()


TOKEN_REVIEWS = Kind("authentication.k8s.io", "v1", "tokenreviews", "TokenReview", TokenReview, namespaced=False)
ACCESS_REVIEWS = Kind(
    "authorization.k8s.io", "v1", "subjectaccessreviews", "SubjectAccessReview", AccessReview, namespaced=False
)


class Cache(Generic[V]):
    """A bounded cache; the least recently used entry is dropped first."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._all: OrderedDict[Hashable, tuple[float, V]] = OrderedDict()

    def get(self, key: Hashable) -> V | None:
        found = self._all.get(key)
        if found is None or found[0] <= self._clock.elapsed_s():
            return None
        self._all.move_to_end(key)
        return found[1]

    def keep(self, key: Hashable, value: V) -> None:
        self._all.pop(key, None)
        self._all[key] = (self._clock.elapsed_s() + KEPT_S, value)
        while len(self._all) > MOST_KEPT:
            self._all.popitem(last=False)


class Guard:
    def __init__(self, client: Client, clock: Clock) -> None:
        self._client = client
        self._clock = clock
        self._users: Cache[User] = Cache(clock)
        self._allowed: Cache[bool] = Cache(clock)
        self._unknown = Limits(UNKNOWN_PER_S, UNKNOWN_BURST)

    async def user(self, authorization: str, address: str, audiences: tuple[str, ...] = ()) -> User:
        """The user of this token; a Problem when the cluster knows no such token, or it is for none of the audiences.

        Without audiences it must be issued for the cluster's API server.
        """
        scheme, _, token = authorization.partition(" ")
        token = token.strip()
        if scheme.lower() != "bearer" or not token:
            raise unauthorized("send an Authorization header with a bearer token that the cluster accepts")
        digest = hashlib.sha256(token.encode("utf-8", "surrogatepass")).digest()
        key = (digest, audiences)
        known = self._users.get(key)
        if known is not None:
            return known
        if wait_s := self._unknown.take(address, self._clock.elapsed_s()):
            raise Problem(429, "TooManyRequests", "too many unknown tokens from this address", retry_after_s=wait_s)
        if not token.isascii():  # nobody's: no need to ask the cluster
            raise unauthorized("the cluster does not accept this token")
        review = await self._client.create(TOKEN_REVIEWS, _token_review(token, audiences))
        if not review.status.authenticated or not review.status.user.username:
            raise unauthorized("the cluster does not accept this token" + _issued_for(audiences))
        # A server that knows nothing of audiences names none: such a token may be meant for anyone.
        if audiences and not set(audiences) & set(review.status.audiences or ()):
            raise unauthorized("the cluster does not confirm the audience of this token" + _issued_for(audiences))
        # Many pods with good tokens may share an address, such as that of their node.
        self._unknown.give_back(address)
        self._users.keep(key, review.status.user)
        return review.status.user

    async def allows(self, user: User, action: Action) -> bool:
        """Whether the cluster's roles let the user do this."""
        who = msgspec.json.encode(user)
        known = self._allowed.get((who, action))
        if known is None:
            review = await self._client.create(ACCESS_REVIEWS, _access_review(user, action))
            known = review.status.allowed and not review.status.denied
            self._allowed.keep((who, action), known)
        return known

    async def require(self, user: User, action: Action) -> None:
        if not await self.allows(user, action):
            raise Problem(403, "Forbidden", f"{user.username} may not {action.described()}")


def _token_review(token: str, audiences: tuple[str, ...]) -> dict[str, Any]:
    spec: dict[str, Any] = {"token": token, **({"audiences": list(audiences)} if audiences else {})}
    return {"apiVersion": TOKEN_REVIEWS.api_version, "kind": TOKEN_REVIEWS.kind, "spec": spec}


def _issued_for(audiences: tuple[str, ...]) -> str:
    return f"; it must be issued for the audience {' or '.join(map(repr, audiences))}" if audiences else ""


def _access_review(user: User, action: Action) -> dict[str, Any]:
    spec: dict[str, Any] = {
        "user": user.username,
        "uid": user.uid,
        "groups": list(user.groups or ()),
        "extra": {key: list(values) for key, values in (user.extra or {}).items()},
        "resourceAttributes": {name: value for name, value in msgspec.structs.asdict(action).items() if value},
    }
    return {"apiVersion": ACCESS_REVIEWS.api_version, "kind": ACCESS_REVIEWS.kind, "spec": spec}
