"""Shared connections: one process of a machine, the agent, holds the real connection; the others use it by a proxy.

- `client`: what a user writes, a class with async methods.
- `holder`: its one real instance, its life, its calls; `topics`: who follows which key.
- `server`, `protocol`, `connection`: the way between the agent and the other processes.
- `proxy`: what the user's code gets there: the same methods, and subscriptions.
"""
