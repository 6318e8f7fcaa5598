"""The local protocol: how a host's node shares its locks with the processes attached to it.

A node of a group is a host. One process of the host, the *host node*, is the member: it runs the
algorithms with the other hosts. All other processes attach to it and are its users. Attaching,
leaving and crashing change no view.

messages     what the two sides tell each other
chain        which processes get a lock one after the other
pages        the memory that the two sides share
process      one lock at an attached process
host         one lock at the host node, and the processes that are attached
local_lock   one lock at an attached process, with its callers
core         all locks of an attached process, in the place of a member's `Core`
sharing      all locks of a host node that attached processes use

For each lock the host node makes *numbers*. A number is bound to one process and never used again;
later numbers are larger. The process that has the number may enter, again and again, until the
number is handed on, returned or revoked. So a lock that one process uses alone costs no message. A
number comes with the largest fence that may be used under it: each entry takes one.

The host node names *successors* ahead, each with the number under which it will hold. The holder
hands the first of these numbers over itself, with one message to that successor, and tells it of the
others. Where a lock is hot, the host node also names processes that do not wait, but are likely to
ask again; a process passes on what it does not need. So the lock goes round among them, and the host
node, which is told of hand-overs in its own time, is not waited for.

What a process is inside stands on a page that the host node can read. A process first marks its
page, then looks whether its number was revoked. The host node first writes that the number is
revoked, then looks at the page. So one of them sees the other, and a process that is stuck is
waited for only if it is inside.

Each incarnation of the host node is a *generation*. A process has a connection to each generation
that it has heard of, and speaks on the newest one. What it hears from older ones it drops, and so
what another process hands over under an older one. A new host node grants nothing before each
living process has reported, or was read and revoked. So an older host node that was only stopped,
and goes on, does no harm.

The rules, by their numbers in the code. `check/protocols/attached.py` explores them, and
`mutants/attached.py` takes each of them away.

1. A process drops what is said in another generation than its own.
2. Only the host node makes numbers, when it names an owner or a successor. A number is never used
   again.
3. At a release: if a successor is known, its number is handed over, and the host node is told. If
   the number was recalled, it is returned. Otherwise it is kept. A number that arrives and that no
   caller wants any more is handed on or returned. A successor that was named is never replaced;
   others may be named after it.
4. What is said about a number that has not arrived yet is kept until it arrives.
5. A process accepts a number once, and no number that is smaller than one that it has accepted.
6. When a number has ended (it was returned, or revoked and the process is not inside, or its
   process is dead), the successor becomes the owner under the number that was named, whether it was
   handed over or not.
7. A process marks, and then looks whether its number is revoked. The host node revokes, and then
   looks at the mark. If there is a mark, it waits.
8. What a process says about a number implies that the number was handed over to it, and that those
   before it in the chain have ended.
9. When a new generation begins, a process forgets successors and recalls of the old one, and
   reports once.
10. A new generation grants nothing before every living process has reported or was read. The
    largest number that is found owns the lock.
11. A process that does not report is revoked and its page is read. If it is inside, it is the
    owner. If it is not, it has nothing.
12. A process that finds its number revoked returns it before it asks again.
13. When a process dies, the owner is granted its number again if another process handed it over:
    the hand-over may have died with that process. A successor that becomes the owner without a
    hand-over is told which ones come after it.
14. What a caller may do under a number, the number says, not the caller. A number for reading that
    arrives when the callers have given up and a writer waits is returned, and asked for again. A
    reader under a number for writing has the lock for itself.
15. A report says which number arrived last. A number of the process that is larger may be under way,
    and is revoked before it is taken for gone; a smaller one that the process has no more is gone.
"""
