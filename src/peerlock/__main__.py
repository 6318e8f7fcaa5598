"""`python -m peerlock`."""

from peerlock.cli import main

main()
