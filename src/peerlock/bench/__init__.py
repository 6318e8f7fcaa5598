"""Measurements of the lock on this machine: `peerlock bench`."""
