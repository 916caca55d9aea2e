"""The gateway: clients in any language put, reserve and delete tasks, over beanstalkd's protocol or one of JSON.

Calls go in this order, and never back: `service` runs a process with a `server` of connections; `beanstalk` and `json`
are the protocols, whose sessions share `session`; `gateway` puts together what they call: `reserving`, then
`reservation_ends` and `puts`, then `tubes`, then `ready_jobs` with `waiting` clients, then `group_commit` of
`operations`.
"""
