"""The page: runs to watch, step, break and share; lessons; and groups as they live."""
