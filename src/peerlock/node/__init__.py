"""The real lock, without input and output: views, sessions, the lock table. Time is passed in; shells do the rest."""
