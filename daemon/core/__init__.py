"""The heart: facts, the pure plan, and the thin shells that carry it out."""
