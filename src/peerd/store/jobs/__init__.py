"""Jobs: tasks as queue clients see them, which put, reserve, release, bury, kick and delete them.

A tube is a queue, a job is a task that has not ended, and a reservation is a claim with a deadline: ``deadline_at`` is
not null exactly while a queue client holds the row. Every write of a holder names the lease, as a worker's does.

Ready is pending; delayed is scheduled, failure or waiting; reserved is working; buried is buried. Tasks that have ended
are no jobs.
"""
