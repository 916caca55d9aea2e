"""Streams of what changes in the cluster, so that pages and programs need not ask again and again.

A topic is a kind of event as one client may see it, or the log lines of a task. While it has viewers, it is read once
for all of them, and what is new goes to each. So the cost to the database follows topics, not viewers, and is none
without viewers.
"""
