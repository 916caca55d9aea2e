"""Why processes ended: causes, reports to the agent, out-of-memory kills and orphans."""
