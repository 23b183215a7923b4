"""What placement serves over HTTP: POST /schedulePod, explain, the kube-scheduler extender."""
