"""Host nodes and attached processes, on a real host (`node/attached/` has the protocol).

directory   where the two sides meet: the host node's lock, generations, pages and sockets
page        shared memory: what a process is inside of, and what the host node has revoked
connection  from an attached process to its host node
shell       what drives an attached process; `net/aio/attached.py` and `net/threads/attached.py` are its two forms
serving     the host node's side
start       a host node is started on demand
"""
