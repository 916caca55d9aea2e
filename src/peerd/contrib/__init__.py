"""Bridges to other frameworks; each needs what its name says, and nothing of peerd needs them."""
