"""Every interleaving of a small group, running the very objects that ship.

    from peerlock.algorithms import choose
    from peerlock.check.run import Configuration, run
    from peerlock.check.verdicts import shapes_of

    found = run(Configuration(choose("ricart-agrawala"), shapes_of("ricart-agrawala", 3), (1, 1,
    1))) print(found.verdict, found.outcome.states)

run                  the one way to check: `Configuration` -> `Result`
model, engine        what can happen in each state; the successors of many states at once
search               breadth first, with the shortest way to what is violated
properties, observers
                     what must hold; what is counted along the way
liveness             can a node wait for ever?
explore, symmetry, partial_order
                     reductions, each checked after the search that used it
counterexample       a way as a story, a trace, a transcript
own_class            what a class of a user may not do
verdicts, mutants    the table of the reference; broken figures that must be found
protocols/           the protocols of the lock: view change, voters, store, one host, a fixed list
"""
