"""What the papers claim, put to the test.

Each claim is a function in the module of its paper; each algorithm's four claims are in
`all_algorithms`. `evidence` has the experiments that such a function can do and the judge of what
they show, `catalogue` finds claims and tests them, and `report` writes pages:

    from peerlock.claims.catalogue import examine, select

    for claim, finding in examine(select(["SK-A-MAX"]), full=False):
        print(claim.words, finding.verdict)
"""
