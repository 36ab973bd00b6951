-- What is deployed, who may call it, and what every call cost. Times are timestamptz, UTC.

CREATE TABLE namespaces (
    name        text PRIMARY KEY,
    -- Who pays.
    account     text NOT NULL,
    created_at  timestamptz NOT NULL
);

CREATE TABLE tokens (
    id          text PRIMARY KEY,
    -- NULL: every namespace.
    namespace   text REFERENCES namespaces (name),
    -- SHA-256 of the token; the token itself is nowhere.
    digest      bytea NOT NULL UNIQUE,
    name        text NOT NULL,
    admin       boolean NOT NULL,
    created_at  timestamptz NOT NULL,
    expires_at  timestamptz,
    revoked_at  timestamptz
);

CREATE TABLE functions (
    namespace    text NOT NULL REFERENCES namespaces (name),
    name         text NOT NULL,
    -- The revision that traffic goes to; NULL: none yet.
    live         integer,
    public       boolean NOT NULL DEFAULT false,
    -- Of the latest revision made. Never falls, so that a number means one thing for ever, metering records included.
    last_number  integer NOT NULL,
    created_at   timestamptz NOT NULL,
    updated_at   timestamptz NOT NULL,
    deleted_at   timestamptz,
    PRIMARY KEY (namespace, name)
);

CREATE TABLE environments (
    digest        text PRIMARY KEY,
    python        text NOT NULL,
    requirements  jsonb NOT NULL,
    created_at    timestamptz NOT NULL,
    last_used_at  timestamptz NOT NULL
);

CREATE TABLE revisions (
    namespace           text NOT NULL,
    function            text NOT NULL,
    number              integer NOT NULL,
    manifest            jsonb NOT NULL,
    bundle_digest       text NOT NULL,
    environment_digest  text NOT NULL REFERENCES environments (digest),
    python              text NOT NULL,
    state               text NOT NULL DEFAULT 'building' CHECK (state IN ('building', 'ready', 'failed')),
    shape               text NOT NULL,
    preload             jsonb NOT NULL DEFAULT '[]',
    error               text NOT NULL DEFAULT '',
    created_at          timestamptz NOT NULL,
    -- With its function; a function of the same name deployed later does not bring it back.
    removed_at          timestamptz,
    PRIMARY KEY (namespace, function, number),
    FOREIGN KEY (namespace, function) REFERENCES functions (namespace, name)
);

-- Metering. Wide columns first so that no row holds padding. The key needs the arrival time because the table is
-- partitioned by it; an invocation has one arrival time, so the key still means: one record a call.
CREATE TABLE metering (
    invocation         uuid NOT NULL,
    arrived_at         timestamptz NOT NULL,
    queued_us          bigint NOT NULL,
    start_us           bigint NOT NULL,
    init_us            bigint NOT NULL,
    run_us             bigint NOT NULL,
    slice_ms           bigint NOT NULL,
    cpu_us             bigint NOT NULL,
    peak_memory_bytes  bigint NOT NULL,
    bytes_in           bigint NOT NULL,
    bytes_out          bigint NOT NULL,
    revision           integer NOT NULL,
    status             integer NOT NULL,
    price_version      integer NOT NULL,
    client_gone        boolean NOT NULL,
    namespace          text NOT NULL,
    function           text NOT NULL,
    token_id           text NOT NULL,
    account            text NOT NULL,
    start_kind         text NOT NULL,
    slice_kind         text NOT NULL,
    fault              text NOT NULL,
    PRIMARY KEY (invocation, arrived_at)
) PARTITION BY RANGE (arrived_at);

-- A few pages a month, and a query by time reads only what it asks for.
CREATE INDEX metering_arrived_at ON metering USING brin (arrived_at);

-- For records of months that nobody would make a partition for (a clock that was wrong): kept, not lost.
CREATE TABLE metering_other PARTITION OF metering DEFAULT;

CREATE FUNCTION metering_make_month(moment timestamptz) RETURNS boolean LANGUAGE plpgsql AS $$
DECLARE
    -- In UTC, whatever the session says.
    first_day date := date_trunc('month', moment AT TIME ZONE 'UTC')::date;
    partition text := 'metering_' || to_char(first_day, 'YYYY_MM');
BEGIN
    PERFORM pg_advisory_xact_lock(hashtext('metering_make_month'));
    IF to_regclass(partition) IS NOT NULL THEN
        RETURN false;
    END IF;
    EXECUTE format(
        'CREATE TABLE %I PARTITION OF metering FOR VALUES FROM (%L) TO (%L)',
        partition,
        first_day::text || ' 00:00:00+00',
        (first_day + interval '1 month')::date::text || ' 00:00:00+00'
    );
    RETURN true;
END
$$;

-- How much of a journal is in `metering`: changed only in the transaction that brings the rows.
CREATE TABLE metering_watermarks (
    journal     text PRIMARY KEY,
    position    bigint NOT NULL,
    updated_at  timestamptz NOT NULL DEFAULT now()
);

CREATE TABLE prices (
    version               integer NOT NULL,
    -- '*': every kind without a price of its own.
    slice_kind            text NOT NULL,
    price_per_slice_hour  numeric NOT NULL CHECK (price_per_slice_hour >= 0),
    valid_from            timestamptz NOT NULL,
    PRIMARY KEY (version, slice_kind)
);

INSERT INTO prices VALUES (1, '*', 0, '1970-01-01 00:00:00+00');
