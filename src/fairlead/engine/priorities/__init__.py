"""Priorities: one taste a file, each a score over nodes."""
