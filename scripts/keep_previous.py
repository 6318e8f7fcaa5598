"""Keep the code of a version of the protocol for the tests, which put it into one group with the newest.

python scripts/keep_previous.py VERSION COMMIT   writes tests/previous/peerlock-VERSION.zip

What comes out is a function of the commit alone: a node with everything that it needs, and nothing to study.
"""

from __future__ import annotations

import io
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

KEPT = ("algorithms", "net", "node", "observe")
TARGET = Path(__file__).parents[1] / "tests" / "previous"


def main(version: str, commit: str) -> None:
    tree = subprocess.run(["git", "archive", commit, "src/peerlock"], check=True, capture_output=True).stdout
    with (
        tarfile.open(fileobj=io.BytesIO(tree)) as files,
        zipfile.ZipFile(TARGET / f"peerlock-{version}.zip", "w", zipfile.ZIP_DEFLATED, compresslevel=9) as kept,
    ):
        for file in sorted(files.getmembers(), key=lambda file: file.name):
            parts = Path(file.name).parts[2:]
            if file.isfile() and (len(parts) == 1 or parts[0] in KEPT):
                body = files.extractfile(file)
                assert body is not None
                kept.writestr(
                    zipfile.ZipInfo("/".join(("peerlock", *parts))), body.read(), zipfile.ZIP_DEFLATED, compresslevel=9
                )


if __name__ == "__main__":
    main(*sys.argv[1:])
