"""HTTP for every room: routes, callers and their rights, limits, problems, OpenAPI, TLS, probes."""
