-- Metering records; gateway/metering/ is the only user.

-- name: begin_journal
INSERT INTO metering_watermarks (journal, position) VALUES ($1, $2) ON CONFLICT (journal) DO NOTHING;

-- name: select_watermark
SELECT position FROM metering_watermarks WHERE journal = $1;

-- name: lock_watermark
-- Waits for a transaction on the same row that may still be ending; then finds the position moved, or not.
SELECT position FROM metering_watermarks WHERE journal = $1 FOR UPDATE;

-- name: move_watermark
UPDATE metering_watermarks SET position = $2, updated_at = now() WHERE journal = $1;

-- name: forget_journal
DELETE FROM metering_watermarks WHERE journal = $1;

-- name: make_month
SELECT metering_make_month($1);

-- name: make_staging
CREATE TEMPORARY TABLE metering_staging (LIKE metering) ON COMMIT DROP;

-- name: insert_staged
INSERT INTO metering SELECT * FROM metering_staging ON CONFLICT (invocation, arrived_at) DO NOTHING;

-- name: usage
-- An error is a call that failed by anyone's fault, and a handler's own 5xx answer.
SELECT namespace, function,
       count(*) AS calls,
       count(*) FILTER (WHERE status >= 500 OR fault <> 'none') AS errors,
       count(*) FILTER (WHERE start_kind = 'hot') AS hot,
       count(*) FILTER (WHERE start_kind = 'warm') AS warm,
       count(*) FILTER (WHERE start_kind = 'cold') AS cold,
       count(*) FILTER (WHERE start_kind = 'frozen') AS frozen,
       least(round(sum(queued_us) / 1000), 9223372036854775807)::bigint AS queued_ms,
       least(round(sum(run_us) / 1000), 9223372036854775807)::bigint AS run_ms,
       least(sum(slice_ms), 9223372036854775807)::bigint AS slice_ms,
       least(round(sum(cpu_us) / 1000), 9223372036854775807)::bigint AS cpu_ms,
       least(sum(bytes_in), 9223372036854775807)::bigint AS bytes_in,
       least(sum(bytes_out), 9223372036854775807)::bigint AS bytes_out,
       count(*) FILTER (WHERE fault = 'platform') AS platform_faults,
       count(*) FILTER (WHERE client_gone) AS client_gone
FROM metering
WHERE ($1::text IS NULL OR namespace = $1)
  AND ($2::timestamptz IS NULL OR arrived_at >= $2)
  AND ($3::timestamptz IS NULL OR arrived_at < $3)
GROUP BY namespace, function
ORDER BY namespace, function;
