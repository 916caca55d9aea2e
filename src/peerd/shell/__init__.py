"""What all processes of a node do alike: the shell around the service that makes the kind of a process."""
