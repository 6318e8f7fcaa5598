"""A real group under real faults: `peerlock verify`.

`run` starts processes (`worker`) on hosts of their own (`hosts`), does to them what networks, machines and people do
(`faults`), and reads what they wrote down (`history`): who believed to hold the lock from when to when, and what
became of every write.
"""
