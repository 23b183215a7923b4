"""What runs pods on the embedded cluster: local processes, or nothing at all that acts as if."""
