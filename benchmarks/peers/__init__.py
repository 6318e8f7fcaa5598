"""This lock beside what people use today: the same work, on one machine, in one run.

**Rows.** This lock on asyncio, on uvloop and with threads, with several algorithms, as it is used: a group on one host, in
which nothing is configured, never two holders, and metrics counting. Beside it locks of one machine (`asyncio.Lock`
within one process, `multiprocessing.Lock`, `flock`) and locks of a server, each with a real one on loopback with a fresh
directory (`servers.py`): Redis by redis-py's `Lock` and by a token in a list, PostgreSQL's advisory locks, ZooKeeper by
kazoo, etcd's lock service, PySyncObj, NATS. What is measured is what a Python program gets: server and client.
`drivers.py` has one small class for each.

**Scenes** (`scenes.py`), the same for all:

- *uncontended*: take it and give it back, while the other members or clients are there and want nothing.
- *contended*: 3 and 5 processes take it again and again and add one to a shared counter. What counts is how often the
  owner *changes*: a lock that lets one process in a thousand times in a row is fast and useless. Fairness is the entries of
  the process that had the fewest over those of the one that had the most.
- *alternation*: two processes, and each entry that does not alternate is made in vain.
- *parked*: one process holds it for 2 ms, the other waits; the time from the release to the grant.
- *first touch*: a name that nobody has used, with five members.

**The floor** (`floor.py`): a message from one process to another over a bare socket, with the same event loop.

Each run goes through all rows, and the median of the runs counts, so a slow minute of the machine hits one run of all and not
all runs of one.
"""
