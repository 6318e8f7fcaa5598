"""This project measured beside others. Not installed with the package.

python -m benchmarks peers       this lock beside the locks that people use today
python -m benchmarks curves      what it costs with more members, names and waiters
python -m benchmarks takeover    how long a lock is nobody's when its holder dies
python -m benchmarks sim         the simulator beside SimPy
python -m benchmarks check       the checker beside Spin
python -m benchmarks.torture     ten processes with one lock, killed, stopped and started again
"""
