"""Algorithms in virtual time; one seed gives one run.

    from peerlock.observe.metrics import Metrics
    from peerlock.sim.experiment import Experiment

    metrics = Metrics()
    Experiment(algorithm="suzuki-kasami-a", nodes=5).prepare().run(seed=7, recorders=[metrics])

experiment           one run as plain values, and what comes of it
world, place         the heap of events; a node's place among them
delays, workload, topology
                     how long messages take, what nodes want, how they are connected
transcript, replay   a run as a script with its output; a recorded run, once more
cluster/             whole nodes of the lock, with every fault of hosts and networks
"""
