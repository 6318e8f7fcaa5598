"""How many states and transitions there are: exactly, for every algorithm.

They change only if an algorithm, the contract or the checker's idea of a state does, and then the commit says why. Three nodes
with one entry each and two nodes with two, both orders of delivery; with a delay bound of one tick where one is needed.
"""

from __future__ import annotations

import pytest

from peerlock.algorithms import choose
from peerlock.check.model import Model
from peerlock.check.properties import Checks
from peerlock.check.search import Search
from peerlock.check.verdicts import shapes_of

COUNTS = [
    ("suzuki-kasami-a", "standard", 2, 2, False, 83, 119),
    ("suzuki-kasami-a", "standard", 3, 1, False, 727, 2_080),
    ("suzuki-kasami-a", "standard", 2, 2, True, 78, 109),
    ("suzuki-kasami-a", "standard", 3, 1, True, 589, 1_610),
    ("suzuki-kasami-b", "repaired", 2, 2, False, 108, 172),
    ("suzuki-kasami-b", "repaired", 3, 1, False, 727, 2_080),
    ("suzuki-kasami-b", "repaired", 2, 2, True, 86, 122),
    ("suzuki-kasami-b", "repaired", 3, 1, True, 589, 1_610),
    ("suzuki-kasami-b", "as_printed", 2, 2, False, 108, 172),
    ("suzuki-kasami-b", "as_printed", 3, 1, False, 727, 2_080),
    ("suzuki-kasami-b", "as_printed", 2, 2, True, 86, 122),
    ("suzuki-kasami-b", "as_printed", 3, 1, True, 589, 1_610),
    ("helary-plouzeau-raynal", "repaired", 2, 2, False, 79, 113),
    ("helary-plouzeau-raynal", "repaired", 3, 1, False, 3_241, 7_188),
    ("helary-plouzeau-raynal", "repaired", 2, 2, True, 74, 103),
    ("helary-plouzeau-raynal", "repaired", 3, 1, True, 2_415, 5_038),
    ("helary-plouzeau-raynal", "as_printed", 2, 2, False, 79, 113),
    ("helary-plouzeau-raynal", "as_printed", 3, 1, False, 3_227, 7_202),
    ("helary-plouzeau-raynal", "as_printed", 2, 2, True, 74, 103),
    ("helary-plouzeau-raynal", "as_printed", 3, 1, True, 2_527, 5_298),
    ("dijkstra-ring", "standard", 2, 2, False, 69, 103),
    ("dijkstra-ring", "standard", 3, 1, False, 149, 280),
    ("dijkstra-ring", "standard", 2, 2, True, 64, 93),
    ("dijkstra-ring", "standard", 3, 1, True, 149, 280),
    ("ricart-agrawala", "standard", 2, 2, False, 158, 227),
    ("ricart-agrawala", "standard", 3, 1, False, 2_858, 9_050),
    ("ricart-agrawala", "standard", 2, 2, True, 140, 190),
    ("ricart-agrawala", "standard", 3, 1, True, 2_080, 5_525),
    ("ricart-agrawala-broadcast", "standard", 2, 2, False, 158, 227),
    ("ricart-agrawala-broadcast", "standard", 3, 1, False, 2_858, 9_050),
    ("ricart-agrawala-broadcast", "standard", 2, 2, True, 140, 190),
    ("ricart-agrawala-broadcast", "standard", 3, 1, True, 2_080, 5_525),
    ("ricart-agrawala-implicit", "standard", 2, 2, False, 1_289, 2_610),
    ("ricart-agrawala-implicit", "standard", 3, 1, False, 34_304, 113_668),
    ("ricart-agrawala-implicit", "standard", 2, 2, True, 864, 1_458),
    ("ricart-agrawala-implicit", "standard", 3, 1, True, 24_076, 69_750),
    ("ricart-agrawala-broadcast-implicit", "standard", 2, 2, False, 1_289, 2_610),
    ("ricart-agrawala-broadcast-implicit", "standard", 3, 1, False, 34_304, 113_668),
    ("ricart-agrawala-broadcast-implicit", "standard", 2, 2, True, 864, 1_458),
    ("ricart-agrawala-broadcast-implicit", "standard", 3, 1, True, 24_076, 69_750),
    ("ricart-agrawala-rw", "standard", 2, 2, False, 611, 1_096),
    ("ricart-agrawala-rw", "standard", 3, 1, False, 26_597, 95_495),
    ("ricart-agrawala-rw", "standard", 2, 2, True, 443, 736),
    ("ricart-agrawala-rw", "standard", 3, 1, True, 16_355, 48_213),
    ("ricart-agrawala-priority", "standard", 2, 2, False, 158, 227),
    ("ricart-agrawala-priority", "standard", 3, 1, False, 3_285, 10_319),
    ("ricart-agrawala-priority", "standard", 2, 2, True, 140, 190),
    ("ricart-agrawala-priority", "standard", 3, 1, True, 2_161, 5_652),
    ("ricart-agrawala-dynamic", "standard", 2, 2, False, 158, 227),
    ("ricart-agrawala-dynamic", "standard", 3, 1, False, 2_858, 9_050),
    ("ricart-agrawala-dynamic", "standard", 2, 2, True, 140, 190),
    ("ricart-agrawala-dynamic", "standard", 3, 1, True, 2_080, 5_525),
    ("ricart-agrawala-failures", "repaired", 2, 2, False, 7_022, 17_681),
    ("ricart-agrawala-failures", "repaired", 3, 1, False, 171_270, 616_991),
    ("ricart-agrawala-failures", "repaired", 2, 2, True, 3_494, 7_624),
    ("ricart-agrawala-failures", "repaired", 3, 1, True, 106_710, 338_294),
    ("ricart-agrawala-failures", "as_printed", 2, 2, False, 6_195, 15_388),
    ("ricart-agrawala-failures", "as_printed", 3, 1, False, 168_607, 608_975),
    ("ricart-agrawala-failures", "as_printed", 2, 2, True, 3_935, 8_774),
    ("ricart-agrawala-failures", "as_printed", 3, 1, True, 104_726, 332_895),
    ("carvalho-roucairol", "standard", 2, 2, False, 125, 176),
    ("carvalho-roucairol", "standard", 3, 1, False, 2_879, 9_070),
    ("carvalho-roucairol", "standard", 2, 2, True, 107, 147),
    ("carvalho-roucairol", "standard", 3, 1, True, 2_101, 5_545),
    ("ricart-agrawala-token", "standard", 2, 2, False, 83, 119),
    ("ricart-agrawala-token", "standard", 3, 1, False, 657, 1_907),
    ("ricart-agrawala-token", "standard", 2, 2, True, 78, 109),
    ("ricart-agrawala-token", "standard", 3, 1, True, 529, 1_471),
    ("naimi-trehel", "standard", 2, 2, False, 69, 103),
    ("naimi-trehel", "standard", 3, 1, False, 164, 296),
    ("naimi-trehel", "standard", 2, 2, True, 64, 93),
    ("naimi-trehel", "standard", 3, 1, True, 154, 264),
]


@pytest.mark.parametrize(("name", "form", "n", "entries", "fifo", "states", "transitions"), COUNTS)
def test_counts(name: str, form: str, n: int, entries: int, fifo: bool, states: int, transitions: int) -> None:
    spec = choose(name, as_printed=form == "as_printed")
    ticks = 1 if spec.needs.delay_bound else None
    model = Model(spec, shapes_of(name, n), [entries] * n, fifo=fifo, delay_bound=ticks)
    outcome = Search(model, Checks([])).run()
    assert (outcome.finished, outcome.states, outcome.transitions) == (True, states, transitions)
