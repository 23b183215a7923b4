"""Quirks: what kube-scheduler 1.36.4 gets wrong, each behind a switch that is on only for parity runs."""

from typing import Final

import msgspec


class Quirks(msgspec.Struct, frozen=True):
    # An incoming pod's namespaceSelector that an unlabelled namespace would satisfy reaches every namespace.
    k136_ns_selector: bool = False
    # NodeResourcesFit scores an incoming pod without its requests for the whole pod.
    pod_level_fit_score: bool = False
    # A spread constraint with the selector {} counts no placed pod, but counts the incoming one.
    spread_empty_selector: bool = False
    # In a preemption trial, taking away a terminating pod lowers a spread count that it was never part of.
    preemption_uncounts_terminating: bool = False
    # In a preemption trial, taking away one of two pods that hold the same host port frees it.
    preemption_frees_shared_ports: bool = False
    # In a preemption trial, whoever mounts a claim of the same name, in whatever namespace, counts as a user of it.
    preemption_counts_claims_by_name: bool = False


NONE: Final = Quirks()
KUBE_1_36: Final = Quirks(
    k136_ns_selector=True,
    pod_level_fit_score=True,
    spread_empty_selector=True,
    preemption_uncounts_terminating=True,
    preemption_frees_shared_ports=True,
    preemption_counts_claims_by_name=True,
)
