"""What the master needs of its host: run directory, log file, sockets, terminal, systemd, descriptors."""
