"""Placement as arithmetic over arrays. Imports the model and numpy only; uses no clock, no network, no randomness."""
