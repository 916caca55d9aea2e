"""Events of the cluster as a stream, so that pages and programs need not ask again and again.

A topic is a kind of event as one client may see it. It has one reader, which reads while the topic has viewers; what
has changed goes to all of them. So the cost to the database follows topics, not viewers, and is none without viewers.
"""
