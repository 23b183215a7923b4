"""Predicates: one rule a file, each a mask over nodes and the reasons it gives."""
