//! Names of wait events, one spelling for all versions.

/// Names that PostgreSQL 17 spells differently from 16 and earlier, in 17's spelling. It generates all names from
/// `WAL_SYNC` and the like, so only capitals changed: a lookup without regard to them finds the new one. Only classes
/// that a client's session can wait in; `LWLock` and `Lock` kept their names.
const RESPELLED: [&str; 32] = [
    "Client:GssOpenServer",
    "Client:SslOpenServer",
    "IO:BasebackupRead",
    "IO:BasebackupSync",
    "IO:BasebackupWrite",
    "IO:BuffileRead",
    "IO:BuffileTruncate",
    "IO:BuffileWrite",
    "IO:DsmAllocate",
    "IO:DsmFillZeroWrite",
    "IO:SlruFlushSync",
    "IO:SlruRead",
    "IO:SlruSync",
    "IO:SlruWrite",
    "IO:WalBootstrapSync",
    "IO:WalBootstrapWrite",
    "IO:WalCopyRead",
    "IO:WalCopySync",
    "IO:WalCopyWrite",
    "IO:WalInitSync",
    "IO:WalInitWrite",
    "IO:WalRead",
    "IO:WalSync",
    "IO:WalSyncMethodAssign",
    "IO:WalWrite",
    "IO:WalsenderTimelineHistoryRead",
    "IPC:BgworkerShutdown",
    "IPC:BgworkerStartup",
    "IPC:ProcarrayGroupUpdate",
    "Client:LibpqwalreceiverConnect",
    "Client:LibpqwalreceiverReceive",
    "Client:WalSenderWaitForWal",
];

/// `class:event` as PostgreSQL 17 and later spell it.
pub(crate) fn canonical(name: &str) -> &str {
    RESPELLED.iter().find(|new| new.eq_ignore_ascii_case(name)).copied().unwrap_or(name)
}

#[cfg(test)]
mod tests {
    use super::canonical;

    #[test]
    fn old_and_new_spelling_meet() {
        assert_eq!(canonical("IO:WALSync"), "IO:WalSync");
        assert_eq!(canonical("IO:WalSync"), "IO:WalSync");
        assert_eq!(canonical("IO:BufFileRead"), "IO:BuffileRead");
        assert_eq!(canonical("IPC:ProcArrayGroupUpdate"), "IPC:ProcarrayGroupUpdate");
    }

    #[test]
    fn what_kept_its_name_is_left_alone() {
        // The lightweight lock shares the event's letters and did not change.
        assert_eq!(canonical("LWLock:WALWrite"), "LWLock:WALWrite");
        assert_eq!(canonical("Lock:transactionid"), "Lock:transactionid");
        assert_eq!(canonical("Extension:Somebody"), "Extension:Somebody");
    }
}
