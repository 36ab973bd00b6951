"""What acts: the process users talk to. HTTP in front, PostgreSQL, Redis and links to agents and workers behind."""
