"""Virtual nodes: node objects, their leases, the pod lifecycle, and the Provider port (what runs a pod)."""
