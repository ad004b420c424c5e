"""How the process presents itself: exit codes, logs, systemd notification."""
