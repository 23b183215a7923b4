"""Heartbeats passed on between replicas: the one that hears a base is not always the one that serves it.

What is passed on is signed by the sender's key of this run, whose public half is on its member lease: only who may
write leases of Fairlead's namespace is believed. Used by `modules.capability`.
"""

import base64
import binascii
from collections.abc import Mapping
from typing import Final

import aiohttp
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from fairlead.modules.members import KEY, URL, Members

MEMBER_HEADER: Final = "Fairlead-Member"
SIGNATURE_HEADER: Final = "Fairlead-Signature"
TIMEOUT_S: Final = 5.0


class NotReached(Exception):
    """The replica that serves the base did not take the heartbeat; the message says why."""


class Forwarder:
    def __init__(self, session: aiohttp.ClientSession, members: Members) -> None:
        self._session = session
        self._members = members
        self._key = Ed25519PrivateKey.generate()

    @property
    def public_key(self) -> str:
        return base64.b64encode(self._key.public_key().public_bytes(Encoding.Raw, PublicFormat.Raw)).decode()

    async def forward(self, owner: str, body: bytes) -> None:
        """Pass a heartbeat on to the replica that serves its base."""
        url = self._members.annotation(owner, URL)
        if not url:
            raise NotReached(f"replica {owner} does not say where it listens")
        signature = base64.b64encode(self._key.sign(_text(self._members.me, owner, body))).decode()
        headers = {MEMBER_HEADER: self._members.me, SIGNATURE_HEADER: signature}
        timeout = aiohttp.ClientTimeout(total=TIMEOUT_S)
        try:
            async with self._session.post(
                f"{url}/heartbeat", data=body, headers=headers, timeout=timeout, allow_redirects=False
            ) as answer:
                if answer.status != 200:
                    raise NotReached(f"replica {owner} answered {answer.status}")
        except (aiohttp.ClientError, TimeoutError, OSError, ValueError) as problem:
            raise NotReached(f"replica {owner} does not answer: {problem}") from None

    def is_genuine(self, headers: Mapping[str, str], body: bytes) -> bool:
        """Whether another replica that lives has signed this for us."""
        sender = headers.get(MEMBER_HEADER, "")
        if sender == self._members.me or not self._members.is_alive(sender):
            return False
        try:
            key = Ed25519PublicKey.from_public_bytes(base64.b64decode(self._members.annotation(sender, KEY)))
            signature = base64.b64decode(headers.get(SIGNATURE_HEADER, ""), validate=True)
            key.verify(signature, _text(sender, self._members.me, body))
        except (InvalidSignature, ValueError, binascii.Error):
            return False
        return True


def _text(sender: str, receiver: str, body: bytes) -> bytes:
    return b"\0".join((sender.encode(), receiver.encode(), body))
