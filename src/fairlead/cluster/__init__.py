"""The one runtime: the only room that talks to an API server, reads a clock, or retries."""
