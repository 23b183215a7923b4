"""Virtual nodes: node objects, their leases, the life of a pod, and the Provider port (what runs a pod)."""
