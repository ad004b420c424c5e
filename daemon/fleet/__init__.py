"""The histories of many nodes: segments, merging, imports and queries at scale."""
