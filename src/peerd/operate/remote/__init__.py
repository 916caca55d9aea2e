"""A client of a server: the operations of `Client` by requests to the REST API, with a URL and a token."""
