"""Admission as one: what is built in, then the webhooks; and once more where webhooks changed an object.

As on a real server, the second pass repeats what is built in, and calls those webhooks again that ask for it and were
called before the change. There is no third.
"""

from dataclasses import replace

from fairlead.apiserver.admission.builtin import BuiltIn
from fairlead.apiserver.admission.webhooks import Reinvocation, Webhooks
from fairlead.apiserver.auth.escalation import NoEscalation
from fairlead.apiserver.json_values import JsonObject
from fairlead.apiserver.registry.attributes import AdmissionAttributes


class Chain:
    def __init__(self, built_in: BuiltIn, no_escalation: NoEscalation, webhooks: Webhooks) -> None:
        self._built_in = built_in
        self._no_escalation = no_escalation
        self._webhooks = webhooks

    async def mutate(self, attempt: AdmissionAttributes) -> JsonObject:
        reinvocation = Reinvocation()
        thing = await self._mutate(attempt, reinvocation)
        if reinvocation.is_needed:
            reinvocation.is_second_pass = True
            thing = await self._mutate(replace(attempt, thing=thing), reinvocation)
        return thing if thing is not None else {}

    async def _mutate(self, attempt: AdmissionAttributes, reinvocation: Reinvocation) -> JsonObject | None:
        await self._built_in.admit(attempt)
        return await self._webhooks.mutate(attempt, reinvocation)

    async def validate(self, attempt: AdmissionAttributes) -> None:
        self._built_in.check(attempt)
        self._no_escalation.check(attempt)
        await self._webhooks.validate(attempt)
