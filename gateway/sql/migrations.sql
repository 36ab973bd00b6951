-- The list of migrations done; gateway/database/migrations.py is the only user.

-- name: make_migrations_table
CREATE TABLE IF NOT EXISTS schema_migrations (
    number      integer PRIMARY KEY,
    name        text NOT NULL,
    checksum    text NOT NULL,
    applied_at  timestamptz NOT NULL DEFAULT now()
);

-- name: lock_migrations
SELECT pg_advisory_xact_lock(hashtext('samovar schema_migrations'));

-- name: load_migrations
SELECT number, name, checksum FROM schema_migrations ORDER BY number;

-- name: insert_migration
INSERT INTO schema_migrations (number, name, checksum) VALUES ($1, $2, $3);
