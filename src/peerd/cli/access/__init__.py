"""The commands ``peerd users …``, ``peerd tokens …`` and ``peerd audit``."""
