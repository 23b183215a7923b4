"""Priorities: one rule a file, each a score over nodes."""
