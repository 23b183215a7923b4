"""Placement as arithmetic over arrays. Imports the model and numpy only; knows no clock, no network, no luck."""
