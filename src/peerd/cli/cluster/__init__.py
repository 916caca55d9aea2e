"""Commands on the cluster's work: queues, limits, nodes, schedules, enqueueing and ringing."""
