-- Takes back everything done in a transaction: rows are again as they were, no attempt is counted.
/* drainer:rollback */ ROLLBACK
