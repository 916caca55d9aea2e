"""Which actor a request comes from: logins, sessions, tokens, trusted proxies."""
