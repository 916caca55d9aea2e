"""Integrations with other frameworks. Each needs that framework installed; nothing else in peerd needs them."""
