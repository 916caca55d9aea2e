"""Other queues, measured beside peerd. These modules run in an environment of their own and import nothing of peerd."""
