"""Processes beside a node: the process `groups` that run under its locks, and the `watchdog`."""
