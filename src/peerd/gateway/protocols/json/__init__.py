"""The JSON protocol; docs/protocol.md is its definition."""
