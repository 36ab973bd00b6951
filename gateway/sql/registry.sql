-- Functions and revisions; gateway/registry.py is the only user.

-- name: load_namespaces
SELECT name, account FROM namespaces;

-- name: load_functions
SELECT namespace, name, live, public, created_at, updated_at FROM functions WHERE deleted_at IS NULL;

-- name: load_revisions
SELECT namespace, function, number, manifest, bundle_digest, environment_digest, python, state, shape, preload, error,
       created_at
FROM revisions WHERE removed_at IS NULL;

-- name: load_price_version
SELECT max(version) FROM prices WHERE valid_from <= $1;

-- name: insert_namespace
INSERT INTO namespaces (name, account, created_at) VALUES ($1, $2, $3)
ON CONFLICT (name) DO NOTHING;

-- name: select_account
SELECT account FROM namespaces WHERE name = $1;

-- name: touch_environment
INSERT INTO environments (digest, python, requirements, created_at, last_used_at) VALUES ($1, $2, $3, $4, $4)
ON CONFLICT (digest) DO UPDATE SET last_used_at = excluded.last_used_at;

-- name: next_revision
-- The row stays locked until the revision is in: numbers are given out one at a time.
INSERT INTO functions (namespace, name, last_number, created_at, updated_at) VALUES ($1, $2, 1, $3, $3)
ON CONFLICT (namespace, name) DO UPDATE SET
    last_number = functions.last_number + 1,
    created_at = CASE WHEN functions.deleted_at IS NULL THEN functions.created_at ELSE excluded.created_at END,
    updated_at = excluded.updated_at,
    deleted_at = NULL
RETURNING last_number, live, public, created_at, updated_at;

-- name: insert_revision
INSERT INTO revisions (namespace, function, number, manifest, bundle_digest, environment_digest, python, shape,
                       created_at)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9);

-- name: mark_ready
UPDATE revisions SET state = 'ready', shape = $4, preload = $5, error = ''
WHERE namespace = $1 AND function = $2 AND number = $3 AND removed_at IS NULL;

-- name: mark_failed
UPDATE revisions SET state = 'failed', error = $4
WHERE namespace = $1 AND function = $2 AND number = $3 AND removed_at IS NULL;

-- name: route
UPDATE functions SET live = $3, public = $4, updated_at = $5
WHERE namespace = $1 AND name = $2 AND deleted_at IS NULL
  AND EXISTS (SELECT FROM revisions r WHERE r.namespace = $1 AND r.function = $2 AND r.number = $3
              AND r.state = 'ready' AND r.removed_at IS NULL)
RETURNING created_at;

-- name: delete_function
UPDATE functions SET live = NULL, public = false, deleted_at = $3, updated_at = $3
WHERE namespace = $1 AND name = $2 AND deleted_at IS NULL;

-- name: remove_revisions
UPDATE revisions SET removed_at = $3 WHERE namespace = $1 AND function = $2 AND removed_at IS NULL;
