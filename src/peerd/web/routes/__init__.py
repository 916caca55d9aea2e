"""The routes of the API, a module for each subject. Each calls one operation of the client, and shows its result."""
