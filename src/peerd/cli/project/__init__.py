"""Commands that set up and examine a project: init, check, migrate, doctor, systemd and alerts."""
