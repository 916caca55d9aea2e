"""The JSON form of operations and errors, made from their signatures, for the API and for clients of a server."""
