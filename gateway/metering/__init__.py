"""One record per call: written to a journal before the answer ends, brought to PostgreSQL exactly once."""
