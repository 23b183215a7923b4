"""A connection to an MQTT broker that comes back by itself: subscriptions are made again, messages never retained.

Used by `modules.tunnel` for the controller and by `base.mqtt_tunnel` for a Python base. A message that cannot be sent
now is not sent later: whoever sent it decides.
"""

import asyncio
import ssl
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import aiomqtt
import structlog

from fairlead.cluster.backoff import Backoff, Rng
from fairlead.cluster.clock import Clock
from fairlead.cluster.waits import started
from fairlead.model.numbers import whole_number

log = structlog.get_logger("fairlead.modules")

PLAIN_PORT: Final = 1883
KEEP_ALIVE_S: Final = 30
SEND_S: Final = 10.0
MOST_WAITING: Final = 10_000
"""Messages that came and were not looked at yet; more are dropped."""

Receive = Callable[[str, bytes], None]


class BadBroker(ValueError):
    """The broker's address or files cannot be used; the message says why."""


@dataclass(frozen=True, slots=True)
class BrokerAddress:
    """Where the broker is, and who we are there. Files are read anew at each connection."""

    host: str
    port: int = PLAIN_PORT
    username: str = ""
    password_file: str = ""
    ca_file: str = ""
    certificate: str = ""
    key: str = ""

    def password(self) -> str:
        return Path(self.password_file).read_text().strip() if self.password_file else ""

    def context(self) -> ssl.SSLContext | None:
        """TLS where a file for it is named."""
        if not (self.ca_file or self.certificate):
            return None
        context = ssl.create_default_context(cafile=self.ca_file or None)
        if self.certificate:
            context.load_cert_chain(self.certificate, self.key or None, password="")
        return context

    def check(self) -> None:
        """BadBroker where what is named cannot be used."""
        try:
            self.password()
            self.context()
        except (OSError, ssl.SSLError) as problem:
            raise BadBroker(f"mqtt: {problem}") from None


def broker_at(
    text: str, username: str, password_file: str, ca_file: str, certificate: str, key: str
) -> BrokerAddress | None:
    """The broker at `host:port`, checked; None where none is named."""
    if not text:
        return None
    address = BrokerAddress(*parse_broker(text), username, password_file, ca_file, certificate, key)
    address.check()
    return address


def parse_broker(text: str) -> tuple[str, int]:
    """`host:port`; without a port it is 1883."""
    host, colon, named = text.rpartition(":")
    if not colon or text.endswith("]"):
        host, named = text, str(PLAIN_PORT)
    port = whole_number(named, 1, 65535)
    if not host or port is None:
        raise BadBroker(f"mqtt: {text[:200]!r} is no address of a broker: write HOST:PORT")
    return host.strip("[]"), port


class Broker:
    def __init__(
        self,
        address: BrokerAddress,
        identifier: str,
        topics: Sequence[str],
        receive: Receive,
        *,
        clock: Clock,
        rng: Rng,
        on_connected: Callable[[], None] = lambda: None,
    ) -> None:
        """`receive` gets every message of `topics` and never waits; `on_connected` is called after each connection."""
        self._address = address
        self._identifier = identifier
        self._topics = tuple(topics)
        self._receive = receive
        self._clock = clock
        self._backoff = Backoff(rng, base_s=0.5, cap_s=15.0)
        self._on_connected = on_connected
        self._client: aiomqtt.Client | None = None
        self._lost = asyncio.Event()

    @property
    def is_connected(self) -> bool:
        return self._client is not None

    async def run(self) -> None:
        """Until cancelled: connect, subscribe, hand on what comes; again after whatever ends that."""
        while True:
            try:
                await self._once()
            except (aiomqtt.MqttError, OSError, ssl.SSLError, ValueError) as problem:
                log.warning("no connection to the broker", broker=self._address.host, problem=str(problem))
            await self._clock.sleep(self._backoff.next_s())

    async def _once(self) -> None:
        address = self._address
        async with aiomqtt.Client(
            address.host,
            address.port,
            username=address.username or None,
            password=address.password() or None,
            identifier=self._identifier,
            clean_session=True,
            keepalive=KEEP_ALIVE_S,
            timeout=SEND_S,
            max_queued_incoming_messages=MOST_WAITING,
            tls_context=address.context(),
        ) as client:
            for topic in self._topics:
                await client.subscribe(topic, qos=1)
            self._client, self._lost = client, asyncio.Event()
            self._backoff.reset()
            log.info("connected to the broker", broker=address.host, port=address.port)
            self._on_connected()
            try:
                async for message in client.messages:
                    # A retained message is of somebody who was; it says nothing of now.
                    if not message.retain and isinstance(message.payload, bytes | bytearray):
                        self._receive(str(message.topic), bytes(message.payload))
            finally:
                self._client = None
                self._lost.set()

    async def publish(self, topic: str, payload: bytes) -> bool:
        """Whether the broker has it. Never retained: a base that comes back must not replay an old command."""
        client, lost = self._client, self._lost
        if client is None:
            return False
        try:
            async with started(client.publish(topic, payload, qos=1, retain=False), lost.wait()) as (sending, losing):
                await asyncio.wait((sending, losing), return_when=asyncio.FIRST_COMPLETED)
                if not sending.done():
                    return False
                sending.result()
        except (aiomqtt.MqttError, OSError, ValueError) as problem:
            log.warning("message not sent", topic=topic, problem=str(problem))
            return False
        return True
