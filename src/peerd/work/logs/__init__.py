"""What the code of attempts logs: captured, bounded, and written beside the outcomes."""
