"""Tables, column types, revisions, and migrating to the newest of them."""
