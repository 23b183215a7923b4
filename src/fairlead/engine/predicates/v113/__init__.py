"""Predicates as they were in Kubernetes 1.13 and as the seed asks for them: node conditions read directly."""
