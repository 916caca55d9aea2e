"""Users, tokens, sessions, failed logins and the audit log."""
