"""Connections to the database: engines, pools, failover, driver errors, and retrying while it is down."""
