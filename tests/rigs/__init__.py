"""Real servers other than Kubernetes that tests run against: Prometheus and Elasticsearch."""
