"""Plugins of our own that every test may use (see each module's first lines), and how Hypothesis looks for examples."""

import hypothesis

pytest_plugins = [
    "tests.support.summary",
    "tests.support.servers",
    "tests.support.markdown_examples",
    "tests.support.xdist_groups",
]

# How long an example takes says something about the machine, not about the code.
hypothesis.settings.register_profile(
    "peerd",
    deadline=None,
    suppress_health_check=[hypothesis.HealthCheck.too_slow],
)
hypothesis.settings.load_profile("peerd")
