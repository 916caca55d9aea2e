"""What connections of each protocol do: messages become operations of the engine, results become replies."""
