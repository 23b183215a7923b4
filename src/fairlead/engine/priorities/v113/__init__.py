"""Priorities as they were in Kubernetes 1.13: scores 0..10, each formula in its old form."""
