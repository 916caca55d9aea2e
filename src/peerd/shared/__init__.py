"""Shared connections: one process of a machine, the agent, holds the real connection; the others use it by a proxy.

A call passes a proxy of `client` and `connection` in the calling process, then `server` and `shared_instance` in the
agent. Users write a class below `client.SharedClient`.
"""
