"""Alerts: `delivery` limits, queues and retries them for each hook; `hooks` sends them."""
