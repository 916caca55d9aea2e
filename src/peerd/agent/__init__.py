"""The agent, one per node: supervised components, and the user's code that each machine has once."""
