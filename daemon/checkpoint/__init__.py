"""Making a checkpoint committed, and keeping it: commit, recovery of half-done commits, retention."""
