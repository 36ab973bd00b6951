"""The connection to PostgreSQL, numbered migrations and named queries kept in SQL files."""
