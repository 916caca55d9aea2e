"""Run one attempt in an executor slot, and record its outcome."""
