"""What a person holds: the command line and the client. Speaks only HTTP to a gateway."""
