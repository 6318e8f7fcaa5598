"""How fast is the checker? Beside Spin, on the same algorithm with the same states.

Ricart-Agrawala, N nodes with K entries each, any order of delivery, no reduction. The Promela model has the same state: phase,
own number or 0 when idle, highest seen, replies outstanding, entries left, deferred set, and for each channel the REQUEST
and the REPLY under way (there is never more than one of each). One transition is one handler, as a `d_step`, and the one
process stands at the head of its loop between them. If the numbers of states differ the comparison is void.

**What limits the checker now.** Memory traffic of numpy on one core: looking up what a message does to an inbox, gathering
cells, merging sorted successors; and at 4,1 a third of a second of Python for the handlers, paid once. The next step would be
to expand the two halves of a level on two cores, since numpy lets go of the interpreter while it sorts and gathers.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from peerlock.errors import UsageError

COMPILE = ("-O2", "-DSAFETY", "-DNOREDUCE")


def promela(n: int, k: int) -> str:
    """Ricart-Agrawala as one loop of indivisible steps."""
    every = (1 << n) - 1
    lines = [
        f"/* Ricart-Agrawala, {n} nodes, {k} entries each. phase: 0 idle, 1 waiting, 2 inside. Sets are bit masks. */",
        f"byte phase[{n}], own[{n}], high[{n}], awaited[{n}], deferred[{n}], entries[{n}] = {k};",
        f"byte request[{n * n}]; /* the number of the REQUEST under way from i to j, at i*{n}+j; 0: none */",
        f"bit reply[{n * n}];",
        "active proctype group() {",
        "end: do",
    ]
    for i in range(n):
        sends = " ".join(f"request[{i * n + j}] = own[{i}];" for j in range(n) if j != i)
        lines.append(
            f"  :: d_step {{ phase[{i}] == 0 && entries[{i}] > 0 -> phase[{i}] = 1; entries[{i}]--; own[{i}] = high[{i}] + 1; "
            f"awaited[{i}] = {every & ~(1 << i)}; {sends} }}"
        )
        replies = " ".join(
            f"if :: deferred[{i}] & {1 << j} -> reply[{i * n + j}] = 1 :: else fi;" for j in range(n) if j != i
        )
        lines.append(f"  :: d_step {{ phase[{i}] == 2 -> phase[{i}] = 0; own[{i}] = 0; {replies} deferred[{i}] = 0 }}")
    for i in range(n):
        for j in range(n):
            if i != j:
                lines += _deliveries(n, i, j)
    return "\n".join([*lines, "  od", "}"]) + "\n"


def _deliveries(n: int, i: int, j: int) -> list[str]:
    """What arrives at j from i."""
    at, back = i * n + j, j * n + i
    before = "own[{j}] <= request[{at}]" if j < i else "own[{j}] < request[{at}]"
    defers = f"phase[{j}] == 2 || (phase[{j}] == 1 && {before.format(j=j, at=at)})"
    others = " && ".join(f"phase[{k}] != 2" for k in range(n) if k != j)
    return [
        f"  :: d_step {{ request[{at}] > 0 -> if :: high[{j}] < request[{at}] -> high[{j}] = request[{at}] :: else fi; "
        f"if :: {defers} -> deferred[{j}] = deferred[{j}] | {1 << i} :: else -> reply[{back}] = 1 fi; request[{at}] = 0 }}",
        f"  :: d_step {{ reply[{at}] == 1 -> reply[{at}] = 0; awaited[{j}] = awaited[{j}] & {((1 << n) - 1) & ~(1 << i)}; "
        f"if :: awaited[{j}] == 0 -> phase[{j}] = 2; assert({others}) :: else fi }}",
    ]


def run_spin(n: int, k: int) -> dict[str, Any]:
    """Spin's own search; compiling is not counted."""
    for tool in ("spin", "gcc"):
        if shutil.which(tool) is None:
            raise UsageError(f"This benchmark runs beside Spin and needs {tool}: apt-get install {tool}.")
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "ra.pml").write_text(promela(n, k))
        subprocess.run(["spin", "-a", "ra.pml"], cwd=folder, check=True, capture_output=True)
        subprocess.run(["gcc", *COMPILE, "-w", "-o", "pan", "pan.c"], cwd=folder, check=True, capture_output=True)
        measured = _measure([str(Path(folder) / "pan"), "-m200000"], folder)
    text = measured.pop("output")
    states = int(float(_find(r"([\d.e+]+) states, stored", text)))
    errors = int(_find(r"errors: (\d+)", text))
    return {
        "states": states,
        "transitions": int(float(_find(r"([\d.e+]+) transitions", text))),
        "errors": errors,
        **measured,
    }


def run_ours(n: int, k: int) -> dict[str, Any]:
    """`peerlock check` in a process of its own, as a user runs it; starting Python is not counted, as compiling is not."""
    command = [
        sys.executable,
        "-P",
        "-m",
        "peerlock",
        "check",
        "ricart-agrawala",
        "-n",
        str(n),
        "--entries",
        str(k),
        "--json",
    ]
    measured = _measure(command, None)
    import json

    result = json.loads(measured.pop("output"))
    return {
        "states": result["states"],
        "transitions": result["transitions"],
        "errors": int(result["verdict"] != "holds"),
        "seconds": result["seconds"],
        "mb": measured["mb"],
    }


def _measure(command: list[str], folder: str | None) -> dict[str, Any]:
    with tempfile.TemporaryFile() as output:
        began = time.perf_counter()
        process = subprocess.Popen(command, cwd=folder, stdout=output)
        _, status, usage = os.wait4(process.pid, 0)
        seconds = time.perf_counter() - began
        process.returncode = os.waitstatus_to_exitcode(status)
        output.seek(0)
        return {"seconds": seconds, "mb": usage.ru_maxrss // 1024, "output": output.read().decode()}


def _find(pattern: str, text: str) -> str:
    found = re.search(pattern, text)
    if found is None:
        raise UsageError(f"Spin printed something unexpected:\n{text}")
    return found[1]
