"""Authentication: tokens of the users that the cluster was started with, and of service accounts.

Service-account tokens are JWTs signed with a key of the data folder, as Kubernetes makes them.
"""

import base64
import hmac
import secrets
import uuid
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.utils import decode_dss_signature, encode_dss_signature

from fairlead.apiserver.request.info import User

ISSUER = "https://kubernetes.default.svc"
ANONYMOUS = User("system:anonymous", groups=("system:unauthenticated",))
EVERYBODY = "system:authenticated"
# What may be bound to a token, as the claim names it → where objects of that kind are stored.
BINDABLE = {"pod": "/pods", "secret": "/secrets", "node": "/nodes"}
# An object that is being deleted counts as gone this long after its deletion was due.
LEEWAY = timedelta(minutes=1)

Find = Callable[[str, str], dict[str, Any] | None]
"""Where a kind is stored, and a key → the object, if there is one."""


class BadToken(Exception):
    pass


class Tokens:
    def __init__(self, folder: Path, find: Find) -> None:
        self._key = _signing_key(folder / "service-accounts.key")
        self._find = find
        self._known: dict[str, User] = {}
        self.admin = _kept_token(folder / "admin.token")
        self.know(self.admin, User("fairlead:admin", groups=("system:masters",)))

    def know(self, token: str, user: User) -> None:
        groups = user.groups if EVERYBODY in user.groups else (*user.groups, EVERYBODY)
        self._known[token] = User(user.name, user.uid, groups, user.extra)

    def user(self, token: str, now: datetime) -> User:
        """The user of a token; BadToken when it is not valid."""
        return self.review(token, now, (ISSUER,))[0]

    def review(self, token: str, now: datetime, audiences: Iterable[str]) -> tuple[User, list[str]]:
        """The user of a token, and which of the audiences it is for; BadToken when it is not valid, or for none."""
        written = token.encode("utf-8", "surrogatepass")
        for known, user in self._known.items():
            if hmac.compare_digest(known.encode(), written):
                if ISSUER not in audiences:
                    raise BadToken
                return user, [ISSUER]
        claims = self._claims(written)
        if claims.get("iss") != ISSUER:
            raise BadToken
        issued_for = claims.get("aud", ())
        accepted = [each for each in audiences if each in issued_for]
        if not accepted:
            listed, requested = (" ".join(f'"{each}"' for each in names) for names in (issued_for, audiences))
            raise BadToken(f"token audiences [{listed}] is invalid for the target audiences [{requested}]")
        if now.timestamp() >= claims.get("exp", 0):
            raise BadToken("service account token has expired")
        if now.timestamp() < claims.get("nbf", 0):
            raise BadToken("service account token is not valid yet")
        return self._account(claims, now), accepted

    def _account(self, claims: Mapping[str, Any], now: datetime) -> User:
        about = claims["kubernetes.io"]
        namespace, account = about["namespace"], about["serviceaccount"]
        name = account["name"]
        found = self._find("/serviceaccounts", f"{namespace}/{name}")
        if found is None:
            raise BadToken(f'serviceaccounts "{name}" not found')
        metadata = found["metadata"]
        if metadata["uid"] != account["uid"]:
            raise BadToken(f"service account UID ({metadata['uid']}) does not match claim ({account['uid']})")
        if _is_deleted(metadata, now):
            raise BadToken(f"service account {namespace}/{name} has been deleted")
        for kind in ("secret", "pod", "node"):
            # A pod's token names the node as well, for information only.
            if kind in about and not (kind == "node" and "pod" in about):
                self._check_bound(kind, namespace, about[kind], now)
        extra: dict[str, tuple[str, ...]] = {"authentication.kubernetes.io/credential-id": (f"JTI={claims['jti']}",)}
        for kind in ("pod", "node"):
            for what, value in about.get(kind, {}).items():
                extra[f"authentication.kubernetes.io/{kind}-{what}"] = (value,)
        groups = ("system:serviceaccounts", f"system:serviceaccounts:{namespace}", EVERYBODY)
        return User(f"system:serviceaccount:{namespace}:{name}", account["uid"], groups, extra)

    def _check_bound(self, kind: str, namespace: str, bound: Mapping[str, str], now: datetime) -> None:
        """A token lives no longer than what it is bound to."""
        found = self._find(BINDABLE[kind], bound["name"] if kind == "node" else f"{namespace}/{bound['name']}")
        if found is not None and found["metadata"]["uid"] != bound["uid"]:
            claim = f"service account {kind} ref claim ({bound['uid']})"
            raise BadToken(f"{kind} UID ({found['metadata']['uid']}) does not match {claim}")
        if found is None or _is_deleted(found["metadata"], now):
            raise BadToken("service account token has been invalidated")

    def issue(
        self,
        namespace: str,
        name: str,
        uid: str,
        *,
        now: datetime,
        life: timedelta,
        audiences: tuple[str, ...],
        bound: Mapping[str, Mapping[str, str]],
    ) -> str:
        """`bound`: pod, secret or node → its name and UID; the token ends with it."""
        begins = int(now.timestamp())
        about: dict[str, Any] = {"namespace": namespace, "serviceaccount": {"name": name, "uid": uid}, **bound}
        claims = {
            "iss": ISSUER,
            "sub": f"system:serviceaccount:{namespace}:{name}",
            "aud": list(audiences or (ISSUER,)),
            "iat": begins,
            "nbf": begins,
            "exp": begins + int(life.total_seconds()),
            "jti": str(uuid.uuid4()),
            "kubernetes.io": about,
        }
        signed = f"{_packed({'alg': 'ES256', 'typ': 'JWT'})}.{_packed(claims)}"
        r, s = decode_dss_signature(self._key.sign(signed.encode(), ec.ECDSA(hashes.SHA256())))
        return f"{signed}.{_base64(r.to_bytes(32, 'big') + s.to_bytes(32, 'big'))}"

    def _claims(self, token: bytes) -> dict[str, Any]:
        try:
            signed, _, signature = token.rpartition(b".")
            _, payload = signed.split(b".")
            raw = _unbase64(signature)
            proof = encode_dss_signature(int.from_bytes(raw[:32], "big"), int.from_bytes(raw[32:], "big"))
            self._key.public_key().verify(proof, signed, ec.ECDSA(hashes.SHA256()))
            claims = msgspec.json.decode(_unbase64(payload))
        except (ValueError, InvalidSignature, msgspec.DecodeError):
            raise BadToken from None
        if not isinstance(claims, dict):
            raise BadToken
        return claims


def _signing_key(path: Path) -> ec.EllipticCurvePrivateKey:
    if path.exists():
        loaded = serialization.load_pem_private_key(path.read_bytes(), None)
        assert isinstance(loaded, ec.EllipticCurvePrivateKey), f"{path} holds another kind of key"
        return loaded
    made = ec.generate_private_key(ec.SECP256R1())
    write_secret(path, private_pem(made))
    return made


def private_pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )


def _kept_token(path: Path) -> str:
    if not path.exists():
        write_secret(path, secrets.token_urlsafe(32).encode())
    return path.read_text().strip()


def write_secret(path: Path, content: bytes) -> None:
    """Readable by its owner alone from the first moment on, and whole or not there."""
    fresh = path.with_name(f".{path.name}.new")
    fresh.touch(mode=0o600)
    fresh.chmod(0o600)
    fresh.write_bytes(content)
    fresh.rename(path)


def _packed(thing: Any) -> str:
    return _base64(msgspec.json.encode(thing))


def _base64(raw: bytes) -> str:
    return base64.urlsafe_b64encode(raw).rstrip(b"=").decode()


def _unbase64(text: bytes) -> bytes:
    return base64.urlsafe_b64decode(text + b"=" * (-len(text) % 4))


def _is_deleted(metadata: Mapping[str, Any], now: datetime) -> bool:
    due = metadata.get("deletionTimestamp")
    return due is not None and datetime.fromisoformat(due) < now - LEEWAY
