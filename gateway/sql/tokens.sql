-- Tokens; gateway/tokens.py is the only user.

-- name: load_tokens
SELECT t.id, t.namespace, t.digest, t.name, t.admin, t.created_at, t.expires_at, n.account
FROM tokens t LEFT JOIN namespaces n ON n.name = t.namespace
WHERE t.revoked_at IS NULL;

-- name: insert_token
INSERT INTO tokens (id, namespace, digest, name, admin, created_at, expires_at) VALUES ($1, $2, $3, $4, $5, $6, $7);

-- name: revoke_token
UPDATE tokens SET revoked_at = $2 WHERE id = $1 AND revoked_at IS NULL;

-- name: ensure_namespace
INSERT INTO namespaces (name, account, created_at) VALUES ($1, $2, $3)
ON CONFLICT (name) DO NOTHING;
