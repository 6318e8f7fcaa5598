"""Bytes between hosts: `connect`, `listen`, `link` (frames between members), `tls` and
`certificates`.
"""
