"""Which peers are members.

view                 the members of one epoch
view_change          learn, wedge, report, start: how a group goes from one view to the next
lease                for how long a member may hold
agent                a member's side of the registries with leases
host                 the registry of one host, as rules over a file system
"""
