-- Who works on a row, and since when. A claim is a fact with a date, not a lock: it survives a crash and lapses.
-- Both columns are nullable without a default, so that adding them rewrites nothing.
/* drainer:migrate */
ALTER TABLE event_outbox
    ADD COLUMN claimed_by text,
    ADD COLUMN claimed_at timestamptz;

-- The reference's index, as it is: unclaimed rows first, then by age. It does not serve ORDER BY enqueued_at across
-- claimed and unclaimed rows; the base's index does, and stays, because the reference drops nothing either. What this
-- one adds to each claim, mark and release is WAL, which is part of what the lease design is measured with.
-- Not CONCURRENTLY, because a step is one transaction: the build blocks inserts, so migrate while little waits.
CREATE INDEX event_outbox_lease_idx
    ON event_outbox (claimed_at NULLS FIRST, enqueued_at)
    WHERE published_at IS NULL;
