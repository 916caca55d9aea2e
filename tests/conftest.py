"""Plugins of our own that every test may use; see each module's first lines."""

pytest_plugins = ["tests.support.summary", "tests.support.servers", "tests.support.documents"]
