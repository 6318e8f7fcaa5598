"""Groups that keep their views in a store which can compare and set.

requests             what a member asks of the store
member               one member: renews its lease, and decides views
agent                when it does so
memory               a store in memory, for tests, the simulator and the checker
"""
