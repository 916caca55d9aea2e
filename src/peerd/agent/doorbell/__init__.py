"""The doorbell in the agent: rings are received here, passed on to the workers, and sent for tasks that fall due."""
