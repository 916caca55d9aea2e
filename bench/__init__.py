"""How fast peerd is, beside the bare driver on the same database in the same run; see docs/performance.md."""
