"""The doorbell: a process that commits work sends a ring, and idle workers claim at once instead of at their next poll.

A ring passes `ringing` and `notifier` (sent after the commit, by a thread of the committing process), then
`peerd.agent.ring_listeners` and `peerd.agent.doorbell_subsystem` (received by the agent of each node), then `wake_ups`
(received by the worker processes of that node). See docs/doorbell.md.
"""
