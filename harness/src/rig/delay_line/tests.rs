use std::{
    io,
    net::{Ipv4Addr, SocketAddr},
    time::{Duration, Instant},
};

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    sync::mpsc,
    time::timeout,
};

use super::DelayLine;

const LONG: Duration = Duration::from_secs(10);

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

async fn pair(delay: Duration) -> (DelayLine, TcpStream, TcpStream, mpsc::UnboundedReceiver<TcpStream>) {
    let (addr, mut accepted) = broker().await;
    let line = DelayLine::start(addr, delay).await.unwrap();
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
async fn closed(line: &DelayLine) {
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
async fn cut_resets_all_and_refuses_until_restored() {
    let (line, mut client, mut server, mut accepted) = pair(Duration::from_millis(20)).await;
    line.cut();
    assert!(timeout(LONG, client.read(&mut [0; 8])).await.unwrap().is_err());
    assert!(timeout(LONG, server.read(&mut [0; 8])).await.unwrap().is_err());
    closed(&line).await;

    let mut refused = TcpStream::connect(line.addr()).await.unwrap();
    assert!(matches!(timeout(LONG, refused.read(&mut [0; 8])).await.unwrap(), Err(_) | Ok(0)));
    assert!(accepted.try_recv().is_err(), "the broker saw a connection that was to be refused");

    line.restore();
    let mut client = TcpStream::connect(line.addr()).await.unwrap();
    let mut server = timeout(LONG, accepted.recv()).await.unwrap().unwrap();
    server.write_all(b"hi").await.unwrap();
    assert_eq!(read_exact(&mut client, 2).await, b"hi");
}

#[tokio::test]
async fn cut_and_restored_at_once_still_cuts() {
    let (line, mut client, _server, _accepted) = pair(Duration::ZERO).await;
    line.cut();
    line.restore();
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
    let line = DelayLine::start(gone, Duration::ZERO).await.unwrap();
    let mut client = TcpStream::connect(line.addr()).await.unwrap();
    assert!(matches!(timeout(LONG, client.read(&mut [0; 8])).await.unwrap(), Err(_) | Ok(0)));
    closed(&line).await;
}
