"""A deterministic simulation of a cluster: the real loops of its nodes, on a real SQLite file, in virtual time.

- `loop`, `threads`: an event loop and threads that run only when the simulation runs them, by a virtual clock.
- `process`, `node`: a process with its real service (agent, manager, worker), and the master that keeps them going.
- `database`: each call of the store stops there, until the world lets it happen, fail, or lose its answer.
- `world`: the one scheduler, which draws the order of all calls from a seed.
- `plan`: what a run is made of: nodes, tasks, faults and people's acts; drawn from a seed, and shrunk by `runner`.
- `rules`, `limit_rules`, `reservation_rules`: what must hold after every step; `observer` reads the table for them.
- `mutations`: peerd broken on purpose, each of which the rules must catch.
"""
