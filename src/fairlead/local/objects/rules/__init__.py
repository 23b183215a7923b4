"""What Kubernetes asks of each kind beyond its shape, a file per topic. `objects/validate.py` is the door."""
