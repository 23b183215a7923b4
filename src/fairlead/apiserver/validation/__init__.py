"""What Kubernetes requires of an object beyond its shape, by API group."""
