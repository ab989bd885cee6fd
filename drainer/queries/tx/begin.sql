-- Opens a transaction. Sent by hand, because the client library's own BEGIN carries no tag.
/* drainer:begin */ BEGIN
