use super::super::{
    Peer::{self, Client, Server},
    pieces::{Dice, Script, ways},
};
use super::*;

fn message(kind: u8, body: &[u8]) -> Vec<u8> {
    let length = u32::try_from(body.len() + 4).unwrap();
    [&[kind], length.to_be_bytes().as_slice(), body].concat()
}

fn opening(code: u32, body: &[u8]) -> Vec<u8> {
    let length = u32::try_from(body.len() + 8).unwrap();
    [length.to_be_bytes().as_slice(), &code.to_be_bytes(), body].concat()
}

/// 16 bytes.
fn startup() -> Vec<u8> {
    opening(196_608, b"user\0u\0\0")
}

fn parse(statement: &str, text: &str) -> Vec<u8> {
    message(b'P', format!("{statement}\0{text}\0\0\0").as_bytes())
}

fn describe(statement: &str) -> Vec<u8> {
    message(b'D', format!("S{statement}\0").as_bytes())
}

fn bind(portal: &str, statement: &str) -> Vec<u8> {
    message(b'B', format!("{portal}\0{statement}\0\0\0\0\0\0\0").as_bytes())
}

fn execute(portal: &str) -> Vec<u8> {
    message(b'E', format!("{portal}\0\0\0\0\0").as_bytes())
}

fn close(what: &str) -> Vec<u8> {
    message(b'C', format!("{what}\0").as_bytes())
}

fn query(text: &str) -> Vec<u8> {
    message(b'Q', format!("{text}\0").as_bytes())
}

fn sync() -> Vec<u8> {
    message(b'S', b"")
}

fn ready(status: u8) -> Vec<u8> {
    message(b'Z', &[status])
}

fn done(tag: &str) -> Vec<u8> {
    message(b'C', format!("{tag}\0").as_bytes())
}

fn row() -> Vec<u8> {
    message(b'D', b"\0\0")
}

fn error(code: &str) -> Vec<u8> {
    message(b'E', format!("SFEHLER\0VERROR\0C{code}\0MCan't\0\0").as_bytes())
}

fn says(peer: Peer, messages: &[Vec<u8>]) -> (Peer, Vec<u8>) {
    (peer, messages.concat())
}

/// A session in the clear that is ready: 16 bytes of the client, 15 of the server.
fn ready_session() -> Script {
    vec![says(Client, &[startup()]), says(Server, &[message(b'R', &[0; 4]), ready(b'I')])]
}

/// Position of the first byte of what a finding is about, in the direction of the call.
fn start(found: &Found) -> Option<u64> {
    match found {
        Found::Execution { start, .. }
        | Found::Answer { start, .. }
        | Found::Error { start, .. }
        | Found::Opaque { start, .. }
        | Found::Ready(Ready { start, .. }) => Some(*start),
        // May be long settled, as documented.
        Found::Complete(_) => None,
    }
}

fn hear(conversation: &mut Conversation, peer: Peer, bytes: &[u8]) -> Vec<Found> {
    let settled = |of: &Conversation| match peer {
        Client => (of.client_settled(), of.client.position()),
        Server => (of.server_settled(), of.server.position()),
    };
    let (before, _) = settled(conversation);
    let found = match peer {
        Client => conversation.client(bytes),
        Server => conversation.server(bytes),
    };
    let (after, read) = settled(conversation);
    assert!(before <= after && after <= read);
    assert!(read - after <= MAX_STARTUP);
    for found in &found {
        assert!(start(found).is_none_or(|start| start >= before), "{found:?} was let go at {before}");
    }
    assert!(conversation.client.kept().len() <= MAX_STARTUP as usize);
    assert!(conversation.server.kept().len() <= HEADER + PREFIX);
    found
}

fn hear_all<'a>(pieces: impl IntoIterator<Item = (Peer, &'a [u8])>) -> (Conversation, Vec<Found>) {
    let mut conversation = Conversation::new();
    let mut found = Vec::new();
    for (peer, bytes) in pieces {
        found.extend(hear(&mut conversation, peer, bytes));
    }
    (conversation, found)
}

/// What is found, however it is cut.
fn found(script: &Script) -> Vec<Found> {
    let ways = ways(script);
    let (_, whole) = hear_all(ways[0].iter().copied());
    for way in &ways {
        assert_eq!(hear_all(way.iter().copied()).1, whole);
    }
    whole
}

/// What is found after the session was ready.
fn found_then(script: Script) -> Vec<Found> {
    let all = found(&[ready_session(), script].concat());
    assert_eq!(all[0], Found::Ready(calm(Status::Idle, 9, 15)));
    all[1..].to_vec()
}

/// Ready, with nothing more to tell.
fn calm(status: Status, start: u64, end: u64) -> Ready {
    Ready {
        status,
        executions: Executions::default(),
        skipped: Executions::default(),
        error: None,
        outstanding: 0,
        asked_ahead: false,
        start,
        end,
    }
}

fn count(phases: &[Phase]) -> Executions {
    let mut executions = Executions::default();
    for phase in phases {
        executions.add(*phase);
    }
    executions
}

fn state(code: &str) -> Option<SqlState> {
    SqlState::new(code.as_bytes())
}

fn complete(phase: Phase, rows: Option<u64>, start: u64, end: u64) -> Found {
    Found::Complete(Complete { phase, outcome: Outcome::Done { rows }, start, end })
}

fn failed(phase: Phase, code: &str, start: u64, end: u64) -> Found {
    Found::Complete(Complete { phase, outcome: Outcome::Failed(state(code)), start, end })
}

fn opaque(script: &Script) -> (Reason, u64) {
    match found(script).last() {
        Some(Found::Opaque { reason, start }) => (*reason, *start),
        other => panic!("{other:?} is not opaque"),
    }
}

/// As sqlx 0.9 writes it: asks for TLS, prepares by name and describes, then binds, executes and closes the unnamed
/// portal; the second time without preparing.
#[test]
fn sqlx_is_followed() {
    let run = [bind("", "sqlx_s_1"), execute(""), close("P"), sync()];
    let script = vec![
        says(Client, &[opening(SSL_REQUEST, b"")]),
        (Server, b"N".to_vec()),
        says(Client, &[startup()]),
        says(Server, &[message(b'R', &[0; 4]), message(b'K', &[7; 8]), ready(b'I')]),
        says(Client, &[parse("sqlx_s_1", "/* drainer:claim */ SELECT 1"), describe("sqlx_s_1"), sync()]),
        says(Server, &[message(b'1', b""), message(b't', b"\0\0"), message(b'T', b"\0\0"), ready(b'I')]),
        says(Client, &run),
        says(Server, &[message(b'2', b""), row(), row(), done("SELECT 2"), message(b'3', b""), ready(b'I')]),
        says(Client, &run),
        says(Server, &[message(b'2', b""), done("SELECT 0"), message(b'3', b""), ready(b'I')]),
        // Its cache is full: the statement is closed, and its name then stands for nothing.
        says(Client, &[close("Ssqlx_s_1"), sync()]),
        says(Server, &[message(b'3', b""), ready(b'I')]),
        says(Client, &run),
        says(Server, &[error("26000"), ready(b'I')]),
    ];
    let claim = count(&[Phase::Claim]);
    assert_eq!(
        found(&script),
        [
            Found::Ready(calm(Status::Idle, 23, 29)),
            Found::Ready(calm(Status::Idle, 48, 54)),
            Found::Execution { phase: Phase::Claim, start: 110, end: 120 },
            Found::Answer { phase: Phase::Claim, start: 59 },
            complete(Phase::Claim, Some(2), 59, 87),
            Found::Ready(Ready { executions: claim, ..calm(Status::Idle, 92, 98) }),
            Found::Execution { phase: Phase::Claim, start: 153, end: 163 },
            Found::Answer { phase: Phase::Claim, start: 103 },
            complete(Phase::Claim, Some(0), 103, 117),
            Found::Ready(Ready { executions: claim, ..calm(Status::Idle, 122, 128) }),
            Found::Ready(calm(Status::Idle, 133, 139)),
            // Client: 175 after the last run, 15 + 5 to close, 21 to bind.
            Found::Execution { phase: Phase::Other, start: 216, end: 226 },
            // 5 and SFEHLER, VERROR, C26000, MCan't with a NUL each and one more: 5 + 8 + 7 + 7 + 7 + 1.
            Found::Answer { phase: Phase::Other, start: 139 },
            Found::Error { state: state("26000"), start: 139, end: 174 },
            failed(Phase::Other, "26000", 139, 174),
            Found::Ready(Ready {
                executions: count(&[Phase::Other]),
                error: state("26000"),
                ..calm(Status::Idle, 174, 180)
            }),
        ]
    );
}

/// A transaction in simple queries, as sqlx sends statements without parameters; RowDescription is the answer's first.
#[test]
fn simple_queries_complete_when_the_server_is_ready() {
    let script = vec![
        says(Client, &[query("/* drainer:begin */ BEGIN")]),
        says(Server, &[done("BEGIN"), ready(b'T')]),
        says(Client, &[query("select 1; select 2")]),
        says(
            Server,
            &[message(b'T', b"\0\0"), row(), done("SELECT 1"), row(), done("SELECT 3"), ready(b'T')],
        ),
        says(Client, &[query(""), query("commit;")]),
        says(Server, &[message(b'I', b""), ready(b'T'), done("COMMIT"), ready(b'I')]),
    ];
    assert_eq!(
        found_then(script),
        [
            Found::Execution { phase: Phase::Begin, start: 16, end: 47 },
            Found::Answer { phase: Phase::Begin, start: 15 },
            complete(Phase::Begin, None, 15, 26),
            Found::Ready(Ready { executions: count(&[Phase::Begin]), ..calm(Status::InTransaction, 26, 32) }),
            Found::Execution { phase: Phase::Other, start: 47, end: 71 },
            Found::Answer { phase: Phase::Other, start: 32 },
            complete(Phase::Other, Some(4), 32, 81),
            Found::Ready(Ready { executions: count(&[Phase::Other]), ..calm(Status::InTransaction, 81, 87) }),
            Found::Execution { phase: Phase::Other, start: 71, end: 77 },
            Found::Execution { phase: Phase::Commit, start: 77, end: 90 },
            Found::Answer { phase: Phase::Other, start: 87 },
            Found::Complete(Complete { phase: Phase::Other, outcome: Outcome::Empty, start: 87, end: 92 }),
            Found::Ready(Ready {
                executions: count(&[Phase::Other]),
                outstanding: 1,
                asked_ahead: true,
                ..calm(Status::InTransaction, 92, 98)
            }),
            Found::Answer { phase: Phase::Commit, start: 98 },
            complete(Phase::Commit, None, 98, 110),
            Found::Ready(Ready { executions: count(&[Phase::Commit]), ..calm(Status::Idle, 110, 116) }),
        ]
    );
}

/// What is found without positions, to read a longer course.
fn course(found: &[Found]) -> Vec<String> {
    let words = |found: &Found| match found {
        Found::Execution { phase, .. } => format!("> {phase:?}"),
        Found::Answer { phase, .. } => format!("< {phase:?}"),
        Found::Error { state, .. } => format!("! {}", state.map_or("?".into(), |state| state.to_string())),
        Found::Complete(Complete { phase, outcome: Outcome::Failed(_), .. }) => format!("failed {phase:?}"),
        Found::Complete(Complete { phase, outcome: Outcome::Suspended, .. }) => {
            format!("suspended {phase:?}")
        }
        Found::Complete(Complete { phase, .. }) => format!("done {phase:?}"),
        Found::Ready(ready) => format!(
            "ready {:?} {}+{} of {}{}",
            ready.status,
            ready.executions.total(),
            ready.skipped.total(),
            ready.outstanding,
            if ready.asked_ahead { " ahead" } else { "" }
        ),
        Found::Opaque { reason, .. } => format!("opaque {reason:?}"),
    };
    found.iter().map(words).collect()
}

const CLAIM: &str = "/* drainer:claim */ SELECT 1";
const MARK: &str = "/* drainer:mark */ UPDATE 1";

/// Two Syncs ahead, portals with names and a portal executed in two goes.
#[test]
fn pipelines_are_answered_in_order() {
    let script = vec![
        says(
            Client,
            &[
                parse("c", CLAIM),
                bind("p", "c"),
                execute("p"),
                parse("", MARK),
                bind("", ""),
                execute(""),
                sync(),
            ],
        ),
        says(Client, &[execute("p"), sync(), sync()]),
        says(Server, &[message(b'1', b""), message(b'2', b""), row(), message(b's', b"")]),
        says(Server, &[message(b'1', b""), message(b'2', b""), done("UPDATE 7"), ready(b'T')]),
        says(Server, &[row(), done("SELECT 1"), ready(b'T'), ready(b'T')]),
    ];
    assert_eq!(
        course(&found_then(script)),
        [
            "> Claim",
            "> Mark",
            "> Claim",
            "< Claim",
            "suspended Claim",
            "< Mark",
            "done Mark",
            "ready InTransaction 2+0 of 1 ahead",
            "< Claim",
            "done Claim",
            "ready InTransaction 1+0 of 0 ahead",
            "ready InTransaction 0+0 of 0",
        ]
    );
}

/// The server reads over what follows an error up to the Sync; what follows the Sync it does.
#[test]
fn after_an_error_the_rest_up_to_the_sync_is_skipped() {
    let mark = [bind("", "m"), execute("")].concat();
    let script = vec![
        says(
            Client,
            &[
                parse("m", MARK),
                mark.clone(),
                mark.clone(),
                mark.clone(),
                query("select 1"),
                sync(),
                mark.clone(),
                sync(),
            ],
        ),
        says(Server, &[message(b'1', b""), message(b'2', b""), done("UPDATE 1"), message(b'2', b"")]),
        says(Server, &[error("40001"), ready(b'E'), message(b'2', b""), done("UPDATE 1"), ready(b'I')]),
    ];
    assert_eq!(
        course(&found_then(script)),
        [
            "> Mark",
            "> Mark",
            "> Mark",
            "> Other",
            "> Mark",
            "< Mark",
            "done Mark",
            "< Mark",
            "! 40001",
            "failed Mark",
            "ready Failed 2+2 of 1 ahead",
            "< Mark",
            "done Mark",
            "ready Idle 1+0 of 0",
        ]
    );
}

/// The error is on its way while the client goes on without a Sync.
#[test]
fn what_is_sent_before_the_sync_after_an_error_is_skipped_too() {
    let script = vec![
        says(Client, &[parse("m", "nonsense"), message(b'H', b"")]),
        says(Server, &[error("42601")]),
        says(Client, &[bind("", "m"), execute(""), query("/* drainer:mark */ x"), sync()]),
        says(Client, &[query("rollback")]),
        says(Server, &[ready(b'I'), done("ROLLBACK"), ready(b'I')]),
    ];
    let found = found_then(script);
    assert_eq!(
        course(&found),
        [
            "! 42601",
            "> Other",
            "> Mark",
            "> Rollback",
            "ready Idle 0+2 of 1 ahead",
            "< Rollback",
            "done Rollback",
            "ready Idle 1+0 of 0",
        ]
    );
    let Found::Ready(ready) = found[4] else { panic!("{:?}", found[4]) };
    assert_eq!((ready.skipped, ready.error), (count(&[Phase::Other, Phase::Mark]), state("42601")));
}

/// A deferred constraint fails at the Sync, after CommandComplete.
#[test]
fn a_commit_that_fails_is_an_error_of_nothing() {
    let script = vec![
        says(Client, &[parse("", MARK), bind("", ""), execute(""), sync()]),
        says(
            Server,
            &[message(b'1', b""), message(b'2', b""), done("UPDATE 1"), error("23503"), ready(b'I')],
        ),
    ];
    assert_eq!(
        course(&found_then(script)),
        ["> Mark", "< Mark", "done Mark", "! 23503", "ready Idle 1+0 of 0"]
    );
}

/// A statement that fails in a simple Query leaves nothing to skip.
#[test]
fn an_error_of_a_query_skips_nothing() {
    let script = vec![
        says(Client, &[query("select 1; oops"), query(MARK)]),
        says(Server, &[message(b'T', b""), row(), done("SELECT 1"), error("42601"), ready(b'I')]),
        says(Server, &[done("UPDATE 1"), ready(b'I')]),
    ];
    assert_eq!(
        course(&found_then(script)),
        [
            "> Other",
            "> Mark",
            "< Other",
            "! 42601",
            "failed Other",
            "ready Idle 1+0 of 1 ahead",
            "< Mark",
            "done Mark",
            "ready Idle 1+0 of 0",
        ]
    );
}

#[test]
fn the_end_of_a_session_is_told() {
    let found = found_then(vec![says(Server, &[error("57P01")])]);
    assert_eq!(found, [Found::Error { state: state("57P01"), start: 15, end: 50 }]);
    let refused = vec![says(Client, &[startup()]), says(Server, &[error("53300")])];
    assert_eq!(course(&super::tests::found(&refused)), ["! 53300"]);
}

/// COPY by Execute: the Sync that was sent with it is ignored, whether the client waits for CopyInResponse or not.
#[test]
fn copied_rows_belong_to_their_execution() {
    let ask = [parse("", "COPY t FROM STDIN"), bind("", ""), execute("")].concat();
    let rows = [message(b'd', b"1\n"), message(b'c', b""), sync()].concat();
    let begin = [message(b'1', b""), message(b'2', b""), message(b'G', b"\0\0\0")].concat();
    let end = [done("COPY 1"), ready(b'T')].concat();
    for script in [
        vec![
            says(Client, &[ask.clone(), sync()]),
            (Server, begin.clone()),
            (Client, rows.clone()),
            (Server, end.clone()),
        ],
        vec![(Client, [ask.clone(), rows.clone()].concat()), (Server, [begin.clone(), end.clone()].concat())],
        vec![(Client, ask.clone()), (Server, begin.clone()), (Client, rows.clone()), (Server, end.clone())],
    ] {
        assert_eq!(
            course(&found_then(script)),
            ["> Other", "< Other", "done Other", "ready InTransaction 1+0 of 0"]
        );
    }
    // The second fails before the client has sent all.
    let one = [says(Client, &[ask.clone(), sync()]), (Server, begin), (Client, rows.clone()), (Server, end)];
    let begin = one[1].clone();
    let two = [one[0].clone(), begin, says(Server, &[error("22P02")]), (Client, rows)];
    let end = [says(Server, &[ready(b'E')])];
    assert_eq!(
        course(&found_then([one.as_slice(), &two, &end].concat()))[4..],
        ["> Other", "< Other", "! 22P02", "failed Other", "ready Failed 1+0 of 0"]
    );
    let simple = vec![
        says(Client, &[query("COPY t FROM STDIN")]),
        says(Server, &[message(b'G', b"\0\0\0")]),
        says(Client, &[message(b'd', b"1\n"), message(b'c', b"")]),
        says(Server, &[done("COPY 1"), ready(b'I')]),
    ];
    assert_eq!(course(&found_then(simple)), ["> Other", "< Other", "done Other", "ready Idle 1+0 of 0"]);
}

/// A password belongs to the startup: the client is not ahead.
#[test]
fn authentication_is_passed_over() {
    let script = vec![
        says(Client, &[startup()]),
        says(Server, &[message(b'R', b"\0\0\0\x0aSCRAM-SHA-256\0\0")]),
        says(Client, &[message(b'p', b"SCRAM-SHA-256\0...")]),
        says(Server, &[message(b'R', &[0; 4]), message(b'S', b"a\0b\0"), ready(b'I')]),
    ];
    assert_eq!(course(&found(&script)), ["ready Idle 0+0 of 0"]);
}

#[test]
fn what_cannot_be_read_is_opaque() {
    let ask = |code| says(Client, &[opening(code, b"")]);
    let tls = (Server, b"S\x16\x03\x01 and so on".to_vec());
    assert_eq!(opaque(&vec![ask(SSL_REQUEST), tls]), (Reason::Encrypted, 0));
    assert_eq!(opaque(&vec![ask(GSSENC_REQUEST), (Server, b"G".to_vec())]), (Reason::Encrypted, 0));
    let both = vec![ask(GSSENC_REQUEST), (Server, b"N".to_vec()), ask(SSL_REQUEST), (Server, b"S".to_vec())];
    assert_eq!(opaque(&both), (Reason::Encrypted, 1));
    assert_eq!(opaque(&vec![(Client, b"\x16\x03\x01\x02\0\x01\0\x01".to_vec())]), (Reason::Encrypted, 0));
    assert_eq!(opaque(&vec![says(Client, &[opening(CANCEL_REQUEST, &[1; 8])])]), (Reason::Cancel, 0));
    let replication = opening(196_608, b"user\0u\0replication\0database\0\0");
    assert_eq!(opaque(&vec![(Client, replication)]), (Reason::Replication, 0));
    let version_2 = opening(131_072, b"u\0");
    assert_eq!(opaque(&vec![(Client, version_2)]), (Reason::NotTheProtocol, 0));
    assert_eq!(opaque(&vec![(Client, b"GET / HTTP/1.1".to_vec())]), (Reason::NotTheProtocol, 0));
    assert_eq!(opaque(&vec![(Client, opening(196_608, &[0; 9993]))]), (Reason::TooLarge, 0));
    assert_eq!(opaque(&vec![(Server, b"R".to_vec())]), (Reason::OutOfStep, 0));
    let then = |peer, message: Vec<u8>| opaque(&[ready_session(), vec![(peer, message)]].concat());
    assert_eq!(then(Client, message(b'F', b"\0\0\0\0")), (Reason::Unsupported, 16));
    assert_eq!(then(Client, message(b'?', b"")), (Reason::NotTheProtocol, 16));
    assert_eq!(then(Client, b"Q\0\0\0\x03".to_vec()), (Reason::NotTheProtocol, 16));
    assert_eq!(then(Client, b"Q\xff\0\0\0".to_vec()), (Reason::NotTheProtocol, 16));
    assert_eq!(then(Client, execute(&"x".repeat(300))), (Reason::TooLarge, 16));
    assert_eq!(then(Client, message(b'E', b"no end")), (Reason::NotTheProtocol, 16));
    assert_eq!(then(Server, done("SELECT 1")), (Reason::OutOfStep, 15));
    assert_eq!(then(Server, ready(b'I')), (Reason::OutOfStep, 15));
    assert_eq!(then(Server, message(b'W', b"\0\0\0")), (Reason::Replication, 15));
    assert_eq!(then(Server, message(b'Z', b"X")), (Reason::NotTheProtocol, 15));
}

#[test]
fn an_opaque_connection_is_let_through() {
    let mut conversation = Conversation::new();
    conversation.client(&startup());
    conversation.server(b"R\0\0");
    assert_eq!((conversation.client_settled(), conversation.server_settled()), (16, 0));
    assert_eq!(conversation.client(b"?\0\0\0\x04more").len(), 1);
    assert_eq!((conversation.client_settled(), conversation.server_settled()), (25, 3));
    assert_eq!(conversation.client(&query("commit")), []);
    assert_eq!(conversation.server(&ready(b'I')), []);
    assert_eq!((conversation.client_settled(), conversation.server_settled()), (37, 9));
}

/// Only the beginning of a message is held back, and an execution is found before all of it is there.
#[test]
fn bodies_go_through_as_they_come() {
    let (mut conversation, _) =
        hear_all(ready_session().iter().map(|(peer, bytes)| (*peer, bytes.as_slice())));
    let long = query(&format!("{MARK} {}", "x".repeat(100_000)));
    assert_eq!(conversation.client(&long[..260]), []);
    assert_eq!(conversation.client_settled(), 16);
    let end = 16 + long.len() as u64;
    assert_eq!(
        conversation.client(&long[260..261]),
        [Found::Execution { phase: Phase::Mark, start: 16, end }]
    );
    assert_eq!(conversation.client_settled(), 16 + 261);
    assert_eq!(conversation.client(&long[261..5000]), []);
    assert_eq!(conversation.client_settled(), 16 + 5000);
    // A row's header is enough to know that the answer begins.
    assert_eq!(conversation.server(b"D\0\x0f\xff"), []);
    assert_eq!(conversation.server_settled(), 15);
    assert_eq!(conversation.server(b"\xff"), [Found::Answer { phase: Phase::Mark, start: 15 }]);
    assert_eq!(conversation.server_settled(), 20);
}

#[test]
fn what_is_remembered_has_limits() {
    let session = || hear_all(ready_session().iter().map(|(peer, bytes)| (*peer, bytes.as_slice()))).0;
    let mut names = session();
    for name in 0..10_000 {
        assert_eq!(names.client(&parse(&format!("other{name}"), "SELECT 1")), []);
    }
    assert_eq!(names.statements.remembered(), 0);
    for name in 0..1024 {
        assert_eq!(names.client(&parse(&format!("c{name}"), CLAIM)), []);
    }
    assert_eq!(names.client(&parse("c0", MARK)), []);
    assert!(matches!(names.client(&parse("c", CLAIM))[..], [Found::Opaque { reason: Reason::TooMany, .. }]));
    assert_eq!(names.statements.remembered(), 0);

    let mut portals = session();
    portals.client(&parse("", CLAIM));
    for name in 0..1024 {
        assert_eq!(portals.client(&bind(&format!("p{name}"), "")), []);
    }
    assert_eq!(portals.statements.remembered(), 1025);
    portals.client(&sync());
    portals.server(&ready(b'I'));
    assert_eq!(portals.statements.remembered(), 1);

    let mut asked = session();
    for _ in 0..4096 {
        assert_eq!(asked.client(&execute("")).len(), 1);
    }
    assert!(matches!(asked.client(&execute(""))[..], [Found::Opaque { reason: Reason::TooMany, .. }]));
}

#[test]
fn garbage_does_no_harm() {
    for seed in 1..=300 {
        let mut dice = Dice(seed);
        let mut noise = Conversation::new();
        let mut talk = hear_all(ready_session().iter().map(|(peer, bytes)| (*peer, bytes.as_slice()))).0;
        for _ in 0..200 {
            let peer = if dice.below(2) == 0 { Client } else { Server };
            let length = dice.below(300);
            hear(&mut noise, peer, &dice.bytes(length));
            // Messages of the protocol in no order, with no sense.
            let kinds: &[u8] = if peer == Client { b"QPBECDSHXpdcf" } else { b"ZCIsEDTGH123tnNSAcd" };
            let kind = kinds[dice.below(kinds.len())];
            let length = dice.below(20);
            let mut body = dice.bytes(length);
            body.extend(if kind == b'Z' { b"".as_slice() } else { b"\0\0" });
            if kind == b'Z' {
                body = vec![b"ITE"[dice.below(3)]];
            }
            hear(&mut talk, peer, &message(kind, &body));
        }
    }
}

/// One byte of a real session is wrong.
#[test]
fn damage_does_no_harm() {
    let mark = [bind("", "m"), execute("")].concat();
    let mut script = ready_session();
    script.push(says(
        Client,
        &[parse("m", MARK), mark.clone(), mark.clone(), sync(), mark, sync(), query("commit")],
    ));
    script.push(says(
        Server,
        &[message(b'1', b""), message(b'2', b""), row(), done("UPDATE 1"), error("40001")],
    ));
    script.push(says(Server, &[ready(b'E'), message(b'2', b""), error("25P02"), ready(b'E')]));
    script.push(says(Server, &[done("ROLLBACK"), ready(b'I')]));
    for speech in 0..script.len() {
        for at in 0..script[speech].1.len() {
            for wrong in [0x00, 0x01, 0x40, 0x80, 0xff] {
                let mut script = script.clone();
                script[speech].1[at] ^= wrong;
                hear_all(script.iter().map(|(peer, bytes)| (*peer, bytes.as_slice())));
            }
        }
    }
}

#[test]
fn phases_are_read_from_the_first_comment_or_word() {
    for (text, phase) in [
        ("/* drainer:claim */ WITH free", Phase::Claim),
        ("\n  /*drainer:mark*/UPDATE", Phase::Mark),
        ("/* drainer:release */ UPDATE", Phase::Release),
        ("/* drainer:begin */ BEGIN", Phase::Begin),
        ("/* drainer:commit */ COMMIT", Phase::Commit),
        ("/* drainer:rollback */ ROLLBACK", Phase::Rollback),
        ("/* drainer:probe */ SELECT", Phase::Probe),
        ("/* drainer:migrate */ BEGIN", Phase::Other),
        ("/* outbox:enqueue */ INSERT", Phase::Other),
        ("/* app */ -- why\n/* drainer:mark */ UPDATE", Phase::Mark),
        ("/* app */ begin", Phase::Begin),
        ("SELECT '/* drainer:claim */'", Phase::Other),
        ("/* drainer:claim", Phase::Other),
        ("-- drainer:claim", Phase::Other),
        ("-- drainer:claim\nSELECT", Phase::Claim),
        ("BEGIN ISOLATION LEVEL SERIALIZABLE", Phase::Begin),
        ("start transaction read only", Phase::Begin),
        ("start_replication", Phase::Other),
        ("beginning", Phase::Other),
        ("Commit;", Phase::Commit),
        ("END", Phase::Commit),
        ("commit and chain", Phase::Commit),
        ("COMMIT PREPARED 'x'", Phase::Other),
        ("ROLLBACK", Phase::Rollback),
        ("abort work", Phase::Rollback),
        ("ROLLBACK; to", Phase::Rollback),
        ("ROLLBACK TO SAVEPOINT a", Phase::Other),
        ("ROLLBACK WORK TO a", Phase::Other),
        ("COMMIT\0/* drainer:mark */", Phase::Commit),
        ("/", Phase::Other),
        ("/*/", Phase::Other),
        ("", Phase::Other),
    ] {
        assert_eq!(Phase::of(text.as_bytes()), phase, "{text}");
    }
}

#[test]
fn codes_of_errors_are_five_characters() {
    assert_eq!(SqlState::new(b"57P01").unwrap().as_str(), "57P01");
    assert_eq!(SqlState::new(b"57p01"), None);
    assert_eq!(SqlState::new(b"57P0"), None);
    assert_eq!(SqlState::of_error(b"SERROR\0C57P01\0\0"), state("57P01"));
    assert_eq!(SqlState::of_error(b"SC\0Vx\0"), None);
    assert_eq!(SqlState::of_error(b"Cx\0C57P01\0"), None);
}

/// BEGIN, a claim, publishing for 100 units, a mark, thinking for 7, COMMIT.
#[test]
fn idle_time_in_transactions_is_measured() {
    let in_transaction = calm(Status::InTransaction, 0, 6);
    let mut witness = Witness::new();
    assert_eq!(witness.idle(5), Idle::default());
    witness.asked(10);
    witness.ready(12, &calm(Status::Idle, 0, 6));
    // Out of a transaction: not idle in one.
    witness.asked(50);
    witness.ready(52, &in_transaction);
    witness.asked(53);
    // The rest of the same request.
    witness.asked(54);
    witness.ready(60, &in_transaction);
    assert_eq!(
        witness.idle(80),
        Idle { total_ns: 1 + 20, longest_ns: 20, spells: 2, longest_transaction_ns: 30 }
    );
    witness.asked(160);
    witness.ready(163, &Ready { asked_ahead: true, ..in_transaction });
    // It had been asked for more: busy until 170.
    witness.ready(170, &calm(Status::Failed, 0, 6));
    witness.asked(177);
    witness.ready(180, &calm(Status::Idle, 0, 6));
    let whole = Idle { total_ns: 1 + 100 + 7, longest_ns: 100, spells: 3, longest_transaction_ns: 130 };
    assert_eq!(witness.idle(500), whole);
    witness.asked(600);
    witness.ready(601, &in_transaction);
    witness.closed(611);
    witness.asked(700);
    witness.ready(701, &in_transaction);
    assert_eq!(witness.idle(900), Idle { total_ns: 118, spells: 4, ..whole });
}
