"""A process that serves an ASGI app on sockets that its master has bound (docs/web.md).

`server` accepts, answers and drains, and has the service of the process; `http` and `websocket` are uvicorn's protocols
with limits and draining; `lifespan` starts and ends the app; `app_state` is what the app finds.

No connection is lost when a process is replaced. The sockets belong to the master, so a connection that is not yet
accepted waits in the kernel's queue for another process. A draining process first stops accepting, and then announces
the end of each connection in the next response on it. An idle connection is not closed before its keep-alive time,
because its client may be sending a request at that moment.
"""
