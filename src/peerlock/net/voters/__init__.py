"""A voter as a server: `server`, its `connection`s, its `record_file`, and the `replacement` of a
voter by another.
"""
