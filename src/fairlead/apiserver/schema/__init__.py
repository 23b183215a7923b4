"""The shape of every kind: fields, defaults, scalars, OpenAPI, custom kinds."""
