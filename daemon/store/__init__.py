"""Object stores and folders as destinations of checkpoints."""
