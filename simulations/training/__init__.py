"""Real trainings, small enough for a laptop: what drills and tests interrupt."""
