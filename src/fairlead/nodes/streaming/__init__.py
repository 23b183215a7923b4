"""Streams into pods: exec and attach over channels of a WebSocket, port-forward over SPDY/3.1 frames inside one."""
