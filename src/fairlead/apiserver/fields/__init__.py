"""Patches, and which manager owns which field."""
