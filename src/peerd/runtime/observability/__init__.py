"""Events, the log that is made of them, and the alerts that are found in them."""
