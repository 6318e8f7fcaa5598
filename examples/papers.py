"""`make demo-papers`: the papers side by side, in a minute.

Five computers share one thing, and only one of them may use it at a time. There is no server to ask.
The computers have to agree among themselves, by messages that take time and may overtake each other.
Here are seven ways to do that, on the same work.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

OUT = Path("out")
ALGORITHMS = [
    "suzuki-kasami-a", "suzuki-kasami-b", "helary-plouzeau-raynal", "dijkstra-ring", "ricart-agrawala", "carvalho-roucairol",
    "ricart-agrawala-token",
]  # fmt: skip


def say(words: str) -> None:
    print(f"\n{words}\n", flush=True)


def peerlock(*words: str) -> None:
    print("$ peerlock", *words, flush=True)
    subprocess.run([sys.executable, "-P", "-m", "peerlock", *words], check=True)


def main() -> None:
    OUT.mkdir(exist_ok=True)
    say(__doc__.strip().split("\n\n")[1] if __doc__ else "")

    say("1. First come, first served, by asking every other node: three nodes want to enter at the same time.")
    trace = str(OUT / "ricart-agrawala.jsonl")
    peerlock("sim", "ricart-agrawala", "-n", "3", "--entries", "1", "--trace", trace)
    peerlock("diagram", trace)
    say(
        "Each node asked the two others, and entered (the thick line) when both had replied: always 4 messages per entry."
    )

    say("2. All algorithms, five nodes, the same work. A hop takes 1 unit of time on average.")
    plot = str(OUT / "compare.png")
    peerlock("compare", *ALGORITHMS, "--plot", plot, "--seed", "1..3")
    say(
        "The token algorithms (suzuki-kasami, -token, helary) need about half the messages of asking every node\n"
        "(ricart-agrawala). Dijkstra's ring needs fewer still, because one message there serves many nodes."
    )

    say("3. A printed algorithm that is wrong: Suzuki and Kasami's Algorithm B, 100 runs as printed, 100 repaired.")
    peerlock("sim", "suzuki-kasami-b", "-n", "3", "--seed", "1..100", "--as-printed")
    peerlock("sim", "suzuki-kasami-b", "-n", "3", "--seed", "1..100")
    say(f"As printed, some nodes wait for ever. The plot of the comparison is in {plot}, the first run in {trace}.")


if __name__ == "__main__":
    main()
