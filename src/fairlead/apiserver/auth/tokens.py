"""Who is asking: tokens of the people and programs the cluster was started with, and of service accounts.

Service-account tokens are JWTs signed with a key of the data folder, as Kubernetes makes them.
"""

import base64
import hmac
import secrets
import uuid
from collections.abc import Callable, Mapping
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


class BadToken(Exception):
    pass


class Tokens:
    def __init__(self, folder: Path, account_uid: Callable[[str, str], str | None]) -> None:
        """`account_uid(namespace, name)` is the UID of a service account that exists, else None."""
        self._key = _signing_key(folder / "service-accounts.key")
        self._account_uid = account_uid
        self._known: dict[str, User] = {}
        self.admin = _kept_token(folder / "admin.token")
        self.know(self.admin, User("fairlead:admin", groups=("system:masters",)))

    def know(self, token: str, user: User) -> None:
        groups = user.groups if EVERYBODY in user.groups else (*user.groups, EVERYBODY)
        self._known[token] = User(user.name, user.uid, groups, user.extra)

    def user(self, token: str, now: datetime, audience: str = ISSUER) -> User:
        """Who bears this token; BadToken when nobody does."""
        for known, user in self._known.items():
            if hmac.compare_digest(known.encode(), token.encode()):
                return user
        claims = self._claims(token)
        if claims.get("iss") != ISSUER:
            raise BadToken
        if audience not in claims.get("aud", ()):
            listed = ",".join(f'"{each}"' for each in claims.get("aud", ()))
            raise BadToken(f'token audiences [{listed}] is invalid for the target audiences ["{audience}"]')
        if not (claims.get("nbf", 0) <= now.timestamp() < claims.get("exp", 0)):
            raise BadToken("the token has expired")
        about = claims["kubernetes.io"]
        namespace, account = about["namespace"], about["serviceaccount"]
        if self._account_uid(namespace, account["name"]) != account["uid"]:
            raise BadToken("the service account is gone")
        extra: dict[str, tuple[str, ...]] = {"authentication.kubernetes.io/credential-id": (f"JTI={claims['jti']}",)}
        if "pod" in about:
            extra["authentication.kubernetes.io/pod-name"] = (about["pod"]["name"],)
            extra["authentication.kubernetes.io/pod-uid"] = (about["pod"]["uid"],)
        groups = ("system:serviceaccounts", f"system:serviceaccounts:{namespace}", EVERYBODY)
        return User(f"system:serviceaccount:{namespace}:{account['name']}", account["uid"], groups, extra)

    def issue(
        self,
        namespace: str,
        name: str,
        uid: str,
        *,
        now: datetime,
        life: timedelta,
        audiences: tuple[str, ...] = (),
        pod: Mapping[str, str] | None = None,
    ) -> str:
        begins = int(now.timestamp())
        about: dict[str, Any] = {"namespace": namespace, "serviceaccount": {"name": name, "uid": uid}}
        if pod is not None:
            about["pod"] = dict(pod)
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

    def _claims(self, token: str) -> dict[str, Any]:
        try:
            signed, _, signature = token.rpartition(".")
            _, payload = signed.split(".")
            raw = _unbase64(signature)
            proof = encode_dss_signature(int.from_bytes(raw[:32], "big"), int.from_bytes(raw[32:], "big"))
            self._key.public_key().verify(proof, signed.encode(), ec.ECDSA(hashes.SHA256()))
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
    pem = made.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    write_secret(path, pem)
    return made


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


def _unbase64(text: str) -> bytes:
    return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
