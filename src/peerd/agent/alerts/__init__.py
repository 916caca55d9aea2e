"""Alerts, from the master to the hooks of peerd.toml.

- `desk`: gives each alert to the hooks that want it; `delivery`: one hook's rate, queue and retries.
- `hooks`: the four kinds: log, webhook, mail, command; `making`: settings become hooks.
"""
