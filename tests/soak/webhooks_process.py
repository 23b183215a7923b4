"""A replica with a webhook: the toy capability of the journeys. Started by tests/soak/webhooks.py."""

import asyncio
import random

import click

from fairlead import app
from fairlead.cluster.clock import RealClock
from fairlead.lifecycle import stopped_by_signals
from fairlead.logs import start_logs
from fairlead.settings import load
from tests.journeys.toy import Toy


@click.command()
@click.option("--kubeconfig", required=True)
@click.option("--identity", required=True)
@click.option("--port", type=int, required=True)
@click.option("--certificate-life", type=float, required=True)
@click.option("--authority-life", type=float, required=True)
def main(kubeconfig: str, identity: str, port: int, certificate_life: float, authority_life: float) -> None:
    settings = load(
        environment={},
        flags={
            "kubeconfig": kubeconfig,
            "identity": identity,
            "capabilities": "toy",
            "listen": "127.0.0.1:0",
            "webhooks.listen": f"127.0.0.1:{port}",
            "webhooks.certificateLifeS": certificate_life,
            "webhooks.authorityLifeS": authority_life,
            "webhooks.overlapS": certificate_life / 6,
            "webhooks.drainS": 4.0,
        },
    )

    async def run() -> None:
        stop = asyncio.Event()
        with stopped_by_signals(stop):
            await app.serve(settings, clock=RealClock(), rng=random.random, stop=stop, known={"toy": Toy})

    start_logs(settings.logs)
    asyncio.run(run())


if __name__ == "__main__":
    main()
