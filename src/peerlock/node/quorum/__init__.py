"""Groups that decide their views by a majority of voters.

messages             what members and voters say to each other
voter                one voter: supports members, and votes on views (Paxos)
voter_driver         when a voter proposes, asks again, and saves its record
member               one member: sends heartbeats, and has a lease
agent                when a member sends a heartbeat, and to which voters
"""
