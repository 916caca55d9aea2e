"""The protocols of queue clients without input or output: bytes in, commands out, and replies as bytes."""
