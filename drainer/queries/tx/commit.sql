-- Ends a transaction: everything done in it becomes visible at once.
/* drainer:commit */ COMMIT
