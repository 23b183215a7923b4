"""Real servers that tests run against: Kubernetes (`kube`), Prometheus and Elasticsearch."""
