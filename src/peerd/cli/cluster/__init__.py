"""Commands for the cluster, through its database."""
