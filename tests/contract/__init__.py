"""Adapters against the real peers: kernel, lstopo, sockets."""
