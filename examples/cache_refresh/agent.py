"""The agent holds the one subscription that a machine needs, however many workers it has."""

import remote

from peerd import Agent


async def setup(agent: Agent) -> None:
    """Begin the subscription, and keep it going: it is begun again when the source has hung up."""
    agent.component("subscription", lambda: subscription(agent))


async def subscription(agent: Agent) -> None:
    """Tell all workers of each change.

    The first version comes with the connection: nobody knows what was announced while there was none.
    """
    async for version in remote.versions():
        agent.log.info("the source has changed", version=version)
        agent.messenger.send_to_workers("refresh", {"by": "push"})
