-- The outbox. A service inserts into it in the transaction that changes its business rows, so an event exists
-- exactly when its cause does.
--
-- Names are not qualified: the table lands in the first schema of search_path, where the service's own tables are.
/* drainer:migrate */
CREATE TABLE event_outbox (
    id           uuid        PRIMARY KEY,
    payload      jsonb       NOT NULL,
    enqueued_at  timestamptz NOT NULL DEFAULT CURRENT_TIMESTAMP,
    published_at timestamptz,
    attempts     integer     NOT NULL DEFAULT 0,
    last_error   text
);

-- Serves `ORDER BY enqueued_at LIMIT n` over what waits. Partial, because published rows are the many and the
-- drainer never reads them.
CREATE INDEX event_outbox_unpublished_idx ON event_outbox (enqueued_at) WHERE published_at IS NULL;
