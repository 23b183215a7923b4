"""Requests for more or fewer pods of a service: their noun, their plan, and the rounds that carry them out."""
