"""Reads traces only: metrics, space-time diagrams, exports."""
