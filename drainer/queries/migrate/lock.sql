-- One migration at a time in a database; others wait here until our transaction ends, however it ends.
-- The number is arbitrary and ours alone: the client library locks its own migrations with another.
/* drainer:migrate */ SELECT pg_advisory_xact_lock(7310304231889)
