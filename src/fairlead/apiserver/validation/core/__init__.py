"""Validation of the core group."""
