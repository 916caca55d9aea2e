"""Time series in the database: buckets of ended attempts, and depths of queues."""
