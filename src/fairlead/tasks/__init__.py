"""Diagnosis tasks: each on a carrier of its own, with agents that probe, and reports of what they found."""
