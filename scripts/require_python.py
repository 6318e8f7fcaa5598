"""Says what is missing before anything is installed: Python 3.11 or later, with pip and venv."""

import importlib.util
import sys

if sys.version_info < (3, 11):
    version = ".".join(map(str, sys.version_info[:3]))
    sys.exit(f"peerlock needs Python 3.11 or later; this is {version}. Say which one: make PYTHON=python3.11 test")
for module, package in (("venv", "python3-venv"), ("ensurepip", "python3-venv")):
    if importlib.util.find_spec(module) is None:
        sys.exit(f"peerlock needs Python's module {module}; on Debian: apt-get install {package}")
