"""Maintenance of the tables: staging due tasks, rescue, purge, and when each is due."""
