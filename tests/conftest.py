"""Plugins of our own that every test may use (see each module's first lines), and the settings of Hypothesis."""

import hypothesis

pytest_plugins = [
    "tests.support.bytecode",
    "tests.support.garbage",
    "tests.support.summary",
    "tests.support.servers",
    "tests.support.structlog_configuration",
    "tests.support.impatience",
    "tests.support.few_examples",
    "tests.support.kept_certificates",
    "tests.support.patience",
    "tests.support.migrated_databases",
    "tests.support.markdown_examples",
    "tests.support.xdist_groups",
]

# The time of an example depends on the machine, not on the code.
hypothesis.settings.register_profile(
    "peerd",
    deadline=None,
    suppress_health_check=[hypothesis.HealthCheck.too_slow],
)
hypothesis.settings.load_profile("peerd")
