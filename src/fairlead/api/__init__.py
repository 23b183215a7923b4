"""HTTP: routes, views, the error shape."""
