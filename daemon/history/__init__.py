"""What happened to this node and its jobs: one SQLite file a node, and what can be counted from several."""
