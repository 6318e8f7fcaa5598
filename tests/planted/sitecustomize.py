"""Python runs this file at its start if its directory is in PYTHONPATH: the mutant that PEERLOCK_PLANT names is planted.

So it is in the test process and in every Python process that a test starts. Nothing under `src` knows of it.
"""

import os

if os.environ.get("PEERLOCK_PLANT"):
    from net_mutants import plant  # type: ignore[import-not-found]

    plant(os.environ["PEERLOCK_PLANT"])
