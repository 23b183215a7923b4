"""Journeys use the real kubectl, so they are `kube` tests."""

from tests.kube.conftest import kube_programs

__all__ = ["kube_programs"]
