"""What is answered per kind of request: lists, watches, subresources, discovery, OpenAPI."""
