"""A process that serves an ASGI app on sockets that its master has bound (docs/web.md).

The parts, from the outside in: `service` is the life of the process; `server` accepts, answers and drains; `listening`
takes connections from a shared socket; `http` and `websocket` are uvicorn's protocols with our limits and our way to
drain; `lifespan` starts and ends the app.

How nothing is lost when a process goes: the sockets are the master's, so a connection that nobody has accepted waits
in the kernel's queue for a sibling. Who leaves accepts no more first, and only then tells each connection, with the
next answer on it, that it is the last. An idle connection is not cut: its client may be sending a request right now.
"""
