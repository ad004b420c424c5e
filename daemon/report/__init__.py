"""What was found, for people: terminal, one HTML file, JSON and CSV."""
