use std::{
    io,
    net::{Ipv4Addr, SocketAddr},
    num::NonZeroU64,
    time::{Duration, Instant},
};

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    sync::mpsc,
    time::timeout,
};

use super::{Condition, Link, Protocol, Trap};
use crate::scenario::{Point, When};

const LONG: Duration = Duration::from_secs(10);
const NOTHING: Condition = Condition {
    delay: Duration::ZERO,
    jitter: Duration::ZERO,
    stalled: false,
    cut: false,
    reset_after: None,
    bandwidth: None,
};
const CUT: Condition = Condition { cut: true, ..NOTHING };

/// A listener that hands its connections over.
async fn broker() -> (SocketAddr, mpsc::UnboundedReceiver<TcpStream>) {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let addr = listener.local_addr().unwrap();
    let (sender, receiver) = mpsc::unbounded_channel();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            if sender.send(stream).is_err() {
                return;
            }
        }
    });
    (addr, receiver)
}

async fn pair(delay: Duration) -> (Link, TcpStream, TcpStream, mpsc::UnboundedReceiver<TcpStream>) {
    let (addr, mut accepted) = broker().await;
    let line = Link::start(addr, delay).await.unwrap();
    let client = TcpStream::connect(line.addr()).await.unwrap();
    let server = timeout(LONG, accepted.recv()).await.unwrap().unwrap();
    (line, client, server, accepted)
}

async fn read_exact(stream: &mut TcpStream, bytes: usize) -> Vec<u8> {
    let mut buffer = vec![0; bytes];
    timeout(LONG, stream.read_exact(&mut buffer)).await.unwrap().unwrap();
    buffer
}

/// Waits until the line has no connection.
async fn closed(line: &Link) {
    let deadline = Instant::now() + LONG;
    while line.connections() > 0 {
        assert!(Instant::now() < deadline, "{} connections are still open", line.connections());
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

#[tokio::test]
async fn broker_to_drainer_is_late_and_drainer_to_broker_is_not() {
    let delay = Duration::from_millis(80);
    let (line, mut client, mut server, _accepted) = pair(delay).await;
    assert_eq!(line.connections(), 1);

    let sent = Instant::now();
    client.write_all(b"publish").await.unwrap();
    assert_eq!(read_exact(&mut server, 7).await, b"publish");
    assert!(sent.elapsed() < delay, "{:?}", sent.elapsed());

    let said = Instant::now();
    server.write_all(b"ack").await.unwrap();
    assert_eq!(read_exact(&mut client, 3).await, b"ack");
    assert!(said.elapsed() >= delay, "{:?}", said.elapsed());
}

#[tokio::test]
async fn a_delay_costs_no_throughput_and_keeps_the_order() {
    let (_line, mut client, mut server, _accepted) = pair(Duration::from_millis(50)).await;
    let sent: Vec<u8> = (0..4_000_000_u32).map(|n| u8::try_from(n % 251).unwrap()).collect();
    let expected = sent.clone();
    let started = Instant::now();
    let writer = tokio::spawn(async move {
        for chunk in sent.chunks(777) {
            server.write_all(chunk).await.unwrap();
        }
        server
    });
    assert!(read_exact(&mut client, expected.len()).await == expected, "bytes changed or changed places");
    // One delay, not one for each of 5,149 chunks.
    assert!(started.elapsed() < Duration::from_secs(2), "{:?}", started.elapsed());
    writer.await.unwrap();
}

#[tokio::test]
async fn a_half_close_is_carried_behind_the_bytes_before_it() {
    let delay = Duration::from_millis(50);
    let (line, mut client, mut server, _accepted) = pair(delay).await;
    client.write_all(b"last").await.unwrap();
    client.shutdown().await.unwrap();
    let mut heard = Vec::new();
    timeout(LONG, server.read_to_end(&mut heard)).await.unwrap().unwrap();
    assert_eq!(heard, b"last");

    let said = Instant::now();
    server.write_all(b"answer").await.unwrap();
    drop(server);
    let mut answer = Vec::new();
    timeout(LONG, client.read_to_end(&mut answer)).await.unwrap().unwrap();
    assert_eq!(answer, b"answer");
    assert!(said.elapsed() >= delay);
    closed(&line).await;
}

#[tokio::test]
async fn a_drainer_that_dies_counts_until_the_broker_has_closed() {
    let (line, mut client, mut server, _accepted) = pair(Duration::from_millis(20)).await;
    client.write_all(b"publish").await.unwrap();
    client.set_zero_linger().unwrap();
    drop(client);
    let mut heard = Vec::new();
    timeout(LONG, server.read_to_end(&mut heard)).await.unwrap().unwrap();
    assert_eq!(line.connections(), 1, "the broker has not closed yet");
    // An answer to somebody who is gone.
    server.write_all(&[0; 100_000]).await.unwrap();
    assert_eq!(line.connections(), 1);
    drop(server);
    closed(&line).await;
}

#[tokio::test]
async fn a_reset_by_the_broker_is_a_reset_at_the_drainer() {
    let (line, mut client, server, _accepted) = pair(Duration::from_millis(20)).await;
    server.set_zero_linger().unwrap();
    drop(server);
    let error = timeout(LONG, client.read(&mut [0; 8])).await.unwrap().unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::ConnectionReset);
    drop(client);
    closed(&line).await;
}

#[tokio::test]
async fn a_cut_resets_all_and_refuses_until_it_heals() {
    let (line, mut client, mut server, mut accepted) = pair(Duration::from_millis(20)).await;
    let cut = line.impose(CUT);
    assert!(timeout(LONG, client.read(&mut [0; 8])).await.unwrap().is_err());
    assert!(timeout(LONG, server.read(&mut [0; 8])).await.unwrap().is_err());
    closed(&line).await;
    assert_eq!((cut.seen().cut, cut.seen().refused), (1, 0));

    let mut refused = TcpStream::connect(line.addr()).await.unwrap();
    assert!(matches!(timeout(LONG, refused.read(&mut [0; 8])).await.unwrap(), Err(_) | Ok(0)));
    assert!(accepted.try_recv().is_err(), "the broker saw a connection that was to be refused");

    assert_eq!(cut.seen().refused, 1);
    drop(cut);
    let mut client = TcpStream::connect(line.addr()).await.unwrap();
    let mut server = timeout(LONG, accepted.recv()).await.unwrap().unwrap();
    server.write_all(b"hi").await.unwrap();
    assert_eq!(read_exact(&mut client, 2).await, b"hi");
}

#[tokio::test]
async fn a_cut_that_heals_at_once_still_cuts() {
    let (line, mut client, _server, _accepted) = pair(Duration::ZERO).await;
    drop(line.impose(CUT));
    assert!(timeout(LONG, client.read(&mut [0; 8])).await.unwrap().is_err());
}

#[tokio::test]
async fn drop_ends_everything() {
    let (line, mut client, mut server, _accepted) = pair(Duration::from_millis(20)).await;
    let addr = line.addr();
    drop(line);
    assert!(matches!(timeout(LONG, client.read(&mut [0; 8])).await.unwrap(), Err(_) | Ok(0)));
    assert!(matches!(timeout(LONG, server.read(&mut [0; 8])).await.unwrap(), Err(_) | Ok(0)));
    let deadline = Instant::now() + LONG;
    while TcpStream::connect(addr).await.is_ok() {
        assert!(Instant::now() < deadline, "the port is still open");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

#[tokio::test]
async fn a_broker_that_is_down_resets_the_drainer() {
    let gone = {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        listener.local_addr().unwrap()
    };
    let line = Link::start(gone, Duration::ZERO).await.unwrap();
    let mut client = TcpStream::connect(line.addr()).await.unwrap();
    assert!(matches!(timeout(LONG, client.read(&mut [0; 8])).await.unwrap(), Err(_) | Ok(0)));
    closed(&line).await;
}

#[tokio::test]
async fn a_stall_lets_no_byte_through_and_loses_none() {
    let (line, mut client, mut server, mut accepted) = pair(Duration::ZERO).await;
    let stall = line.impose(Condition { stalled: true, ..NOTHING });
    client.write_all(b"publish").await.unwrap();
    server.write_all(b"ack").await.unwrap();
    // One that comes meanwhile is accepted and hears nothing.
    let mut late = TcpStream::connect(line.addr()).await.unwrap();
    late.write_all(b"hello").await.unwrap();
    let mut late_server = timeout(LONG, accepted.recv()).await.unwrap().unwrap();
    let deadline = Instant::now() + LONG;
    while stall.seen().withheld < 15 {
        assert!(Instant::now() < deadline, "{:?}", stall.seen());
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    assert_eq!(stall.seen().passed, 0);
    for stream in [&mut client, &mut server, &mut late_server] {
        assert!(
            timeout(Duration::from_millis(50), stream.read(&mut [0; 8])).await.is_err(),
            "it heard a byte"
        );
    }
    drop(stall);
    assert_eq!(read_exact(&mut server, 7).await, b"publish");
    assert_eq!(read_exact(&mut client, 3).await, b"ack");
    assert_eq!(read_exact(&mut late_server, 5).await, b"hello");
    assert_eq!(line.connections(), 2);
}

#[tokio::test]
async fn a_limit_resets_each_connection_after_so_many_bytes() {
    let (line, mut client, mut server, mut accepted) = pair(Duration::ZERO).await;
    client.write_all(&[1; 500]).await.unwrap();
    read_exact(&mut server, 500).await;
    let limit = line.impose(Condition { reset_after: NonZeroU64::new(100), ..NOTHING });
    server.write_all(&[2; 60]).await.unwrap();
    read_exact(&mut client, 60).await;
    client.write_all(&[3; 60]).await.unwrap();
    let mut heard = Vec::new();
    assert!(timeout(LONG, server.read_to_end(&mut heard)).await.unwrap().is_err());
    assert!(heard.len() <= 40, "{} bytes", heard.len());
    assert!(timeout(LONG, client.read(&mut [0; 8])).await.unwrap().is_err());
    // The next one counts for itself, and is left alone once it is healed.
    let mut client = TcpStream::connect(line.addr()).await.unwrap();
    let mut server = timeout(LONG, accepted.recv()).await.unwrap().unwrap();
    client.write_all(&[4; 90]).await.unwrap();
    read_exact(&mut server, 90).await;
    assert_eq!(limit.seen().reset, 1);
    drop(limit);
    client.write_all(&[4; 900]).await.unwrap();
    read_exact(&mut server, 900).await;
}

#[tokio::test]
async fn little_bandwidth_is_what_it_says() {
    let (line, mut client, mut server, _accepted) = pair(Duration::ZERO).await;
    let narrow = line.impose(Condition { bandwidth: NonZeroU64::new(20_000), ..NOTHING });
    let begun = Instant::now();
    let sent = tokio::spawn(async move {
        server.write_all(&[7; 10_000]).await.unwrap();
        server
    });
    assert_eq!(read_exact(&mut client, 10_000).await, [7; 10_000]);
    // 10,000 bytes of 20,000 a second, but for the first sip, which need not wait.
    assert!(begun.elapsed() >= Duration::from_millis(450), "{:?}", begun.elapsed());
    assert!(narrow.seen().throttled > 9_000, "{:?}", narrow.seen());
    sent.await.unwrap();
}

#[tokio::test]
async fn latency_comes_and_goes_and_keeps_the_order() {
    let (line, mut client, mut server, _accepted) = pair(Duration::ZERO).await;
    let ms = Duration::from_millis;
    let late = line.impose(Condition { delay: ms(60), jitter: ms(40), ..NOTHING });
    let begun = Instant::now();
    server.write_all(b"one").await.unwrap();
    let deadline = Instant::now() + LONG;
    while late.seen().delayed == 0 {
        assert!(Instant::now() < deadline, "it was not read");
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    drop(late);
    server.write_all(b"two").await.unwrap();
    assert_eq!(read_exact(&mut client, 6).await, b"onetwo");
    assert!(begun.elapsed() >= ms(60), "{:?}", begun.elapsed());
    server.write_all(b"three").await.unwrap();
    assert_eq!(read_exact(&mut client, 5).await, b"three");
    assert_eq!(line.seen().delayed, 1, "what was said after it healed was late");
}

/// A message of PostgreSQL's: type, length, what it says.
fn message(kind: u8, said: &[u8]) -> Vec<u8> {
    let length = u32::try_from(said.len() + 4).unwrap();
    [&[kind][..], &length.to_be_bytes(), said].concat()
}

fn query(text: &str) -> Vec<u8> {
    message(b'Q', format!("{text}\0").as_bytes())
}

/// A session of PostgreSQL's through a link that reads along, after its startup.
async fn session() -> (Link, TcpStream, TcpStream, mpsc::UnboundedReceiver<TcpStream>) {
    let (addr, mut accepted) = broker().await;
    let line = Link::reading(Protocol::Postgres, addr, Duration::ZERO).await.unwrap();
    let mut client = TcpStream::connect(line.addr()).await.unwrap();
    let mut server = timeout(LONG, accepted.recv()).await.unwrap().unwrap();
    let said = [&196_608_u32.to_be_bytes()[..], b"user\0me\0\0"].concat();
    let startup = [&u32::try_from(said.len() + 4).unwrap().to_be_bytes()[..], &said].concat();
    client.write_all(&startup).await.unwrap();
    assert_eq!(read_exact(&mut server, startup.len()).await, startup);
    let welcome = [message(b'R', &[0; 4]), message(b'Z', b"I")].concat();
    server.write_all(&welcome).await.unwrap();
    assert_eq!(read_exact(&mut client, welcome.len()).await, welcome);
    (line, client, server, accepted)
}

async fn is_reset(stream: &mut TcpStream) -> bool {
    timeout(LONG, stream.read(&mut [0; 64])).await.unwrap().is_err()
}

#[tokio::test]
async fn a_trap_before_a_claim_keeps_it_from_the_server() {
    let (line, mut client, mut server, _accepted) = session().await;
    let trapped = line.trap(Trap { point: Point::Claim, when: When::Before, nth: 2 });
    let (claim, mark) = (query("/* drainer:claim */ SELECT 1"), query("/* drainer:mark */ SELECT 2"));
    let answer = [message(b'C', b"SELECT 1\0"), message(b'Z', b"I")].concat();
    for passes in [&claim, &mark] {
        client.write_all(passes).await.unwrap();
        assert_eq!(&read_exact(&mut server, passes.len()).await, passes);
        server.write_all(&answer).await.unwrap();
        assert_eq!(read_exact(&mut client, answer.len()).await, answer);
    }
    client.write_all(&claim).await.unwrap();
    timeout(LONG, trapped.sprung()).await.unwrap();
    assert!(timeout(Duration::from_millis(50), server.read(&mut [0; 8])).await.is_err(), "it was forwarded");
    drop(trapped);
    assert!(is_reset(&mut client).await && is_reset(&mut server).await);
    closed(&line).await;
}

#[tokio::test]
async fn a_trap_after_a_claim_lets_the_server_finish_and_keeps_its_answer() {
    let (line, mut client, mut server, mut accepted) = session().await;
    let trapped = line.trap(Trap { point: Point::Claim, when: When::After, nth: 1 });
    let claim = query("/* drainer:claim */ SELECT 1");
    client.write_all(&claim).await.unwrap();
    assert_eq!(read_exact(&mut server, claim.len()).await, claim);
    // A notice before it is no answer, and passes.
    let notice = message(b'N', b"SNOTICE\0\0");
    server.write_all(&[notice.clone(), message(b'C', b"SELECT 1\0")].concat()).await.unwrap();
    assert_eq!(read_exact(&mut client, notice.len()).await, notice);
    assert!(timeout(Duration::from_millis(50), trapped.sprung()).await.is_err(), "it may still be undone");
    server.write_all(&message(b'Z', b"I")).await.unwrap();
    timeout(LONG, trapped.sprung()).await.unwrap();
    assert!(timeout(Duration::from_millis(50), client.read(&mut [0; 8])).await.is_err(), "it was forwarded");
    drop(trapped);
    assert!(is_reset(&mut client).await && is_reset(&mut server).await);
    // The next one is left alone.
    let mut next = TcpStream::connect(line.addr()).await.unwrap();
    let mut server = timeout(LONG, accepted.recv()).await.unwrap().unwrap();
    next.write_all(b"no such protocol").await.unwrap();
    assert_eq!(read_exact(&mut server, 16).await, b"no such protocol");
}

#[tokio::test]
async fn time_in_a_transaction_is_told_to_the_millisecond() {
    let (line, mut client, mut server, _accepted) = session().await;
    for (text, status) in [("BEGIN", b"T"), ("COMMIT", b"I")] {
        let query = query(text);
        client.write_all(&query).await.unwrap();
        read_exact(&mut server, query.len()).await;
        let answer = [message(b'C', format!("{text}\0").as_bytes()), message(b'Z', status)].concat();
        server.write_all(&answer).await.unwrap();
        read_exact(&mut client, answer.len()).await;
        // Once in the transaction and once after it.
        tokio::time::sleep(Duration::from_millis(60)).await;
    }
    drop(client);
    drop(server);
    closed(&line).await;
    let idle = line.idle().unwrap();
    let spell = Duration::from_nanos(idle.total_ns);
    assert_eq!(idle.spells, 1);
    assert!((Duration::from_millis(60)..Duration::from_secs(5)).contains(&spell), "{spell:?}");
    assert!(idle.longest_transaction_ns >= idle.longest_ns);
}

#[tokio::test]
async fn what_cannot_be_read_passes_and_says_so() {
    let (addr, mut accepted) = broker().await;
    let line = Link::reading(Protocol::Amqp, addr, Duration::ZERO).await.unwrap();
    let mut client = TcpStream::connect(line.addr()).await.unwrap();
    let mut server = timeout(LONG, accepted.recv()).await.unwrap().unwrap();
    client.write_all(b"GET / HTTP/1.1\r\n\r\n").await.unwrap();
    assert_eq!(read_exact(&mut server, 18).await, b"GET / HTTP/1.1\r\n\r\n");
    assert!(line.idle().unwrap_err().contains("does not speak the protocol"));
}
