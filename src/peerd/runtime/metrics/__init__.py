"""Metrics of a node: what its processes count, how the counts come to the agent, and how Prometheus reads them."""
