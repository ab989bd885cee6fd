-- DDL that waits for its lock makes everybody behind it wait too, so it gives up soon. Ends with the transaction.
-- After the advisory lock, whose wait it would bound as well.
/* drainer:migrate */ SET LOCAL lock_timeout = '5s'
