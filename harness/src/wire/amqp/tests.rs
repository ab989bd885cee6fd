use super::super::{
    Peer::{Client, Server},
    pieces::{Dice, Script, ways},
};
use super::*;

/// 8 bytes and the payload.
fn frame(kind: u8, channel: u16, payload: &[u8]) -> Vec<u8> {
    let size = u32::try_from(payload.len()).unwrap();
    [&[kind], channel.to_be_bytes().as_slice(), &size.to_be_bytes(), payload, &[0xCE]].concat()
}

/// 12 bytes and the arguments.
fn method(channel: u16, class: u16, method: u16, arguments: &[u8]) -> Vec<u8> {
    frame(1, channel, &[&class.to_be_bytes(), method.to_be_bytes().as_slice(), arguments].concat())
}

/// 20 bytes: ticket, exchange "ex", key "k", bits.
fn publish(channel: u16) -> Vec<u8> {
    method(channel, 60, 40, b"\0\0\x02ex\x01k\0")
}

/// 23 bytes: class, weight, body size, flags, delivery mode.
fn header(channel: u16, size: u64) -> Vec<u8> {
    frame(2, channel, &[b"\0\x3c\0\0", size.to_be_bytes().as_slice(), b"\x10\0\x02"].concat())
}

/// 43 bytes: a publish without a body.
fn bare(channel: u16) -> Vec<u8> {
    [publish(channel), header(channel, 0)].concat()
}

/// 21 bytes.
fn ack(channel: u16, tag: u64, multiple: u8) -> Vec<u8> {
    method(channel, 60, 80, &[tag.to_be_bytes().as_slice(), &[multiple]].concat())
}

/// 21 bytes. Bits: multiple, requeue.
fn nack(channel: u16, tag: u64, bits: u8) -> Vec<u8> {
    method(channel, 60, 120, &[tag.to_be_bytes().as_slice(), &[bits]].concat())
}

fn open(channel: u16) -> Vec<u8> {
    method(channel, 20, 10, b"\0")
}

fn select(channel: u16) -> Vec<u8> {
    method(channel, 85, 10, b"\0")
}

/// 20 bytes: code, a text of one, class and method.
fn close(channel: u16, code: u16) -> Vec<u8> {
    method(channel, 20, 40, &[code.to_be_bytes().as_slice(), b"\x01x\0\0\0\0"].concat())
}

fn close_ok(channel: u16) -> Vec<u8> {
    method(channel, 20, 41, b"")
}

fn says(peer: Peer, frames: &[Vec<u8>]) -> (Peer, Vec<u8>) {
    (peer, frames.concat())
}

/// Position of the first byte of what a finding is about, or of the last of a publish.
fn start(found: &Found) -> u64 {
    match found {
        Found::ChannelOpen { start, .. }
        | Found::Select { start, .. }
        | Found::Publish { start, .. }
        | Found::Confirm(Confirm { start, .. })
        | Found::Return { start, .. }
        | Found::Blocked { start }
        | Found::Unblocked { start }
        | Found::ChannelClose { start, .. }
        | Found::ConnectionClose { start, .. }
        | Found::Opaque { start, .. } => *start,
        Found::Published { end, .. } => end - 1,
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
    assert!(before <= after && after <= read && read - after <= 24);
    for found in &found {
        assert!(start(found) >= before, "{found:?} was let go at {before}");
    }
    let counted: u64 = conversation
        .channels
        .values()
        .filter_map(|channel| channel.confirms.as_ref())
        .map(Tags::outstanding)
        .sum();
    assert_eq!(conversation.unsettled(), counted);
    let runs: usize =
        conversation.channels.values().filter_map(|channel| channel.confirms.as_ref()).map(Tags::runs).sum();
    assert_eq!(conversation.runs, runs);
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

/// What is found, and what is unsettled in the end, however it is cut.
fn found(script: &Script) -> (Vec<Found>, u64) {
    let ways = ways(script);
    let (conversation, whole) = hear_all(ways[0].iter().copied());
    for way in &ways {
        let (same, found) = hear_all(way.iter().copied());
        assert_eq!((found, same.unsettled()), (whole.clone(), conversation.unsettled()));
    }
    (whole, conversation.unsettled())
}

/// Channel 1 is open and has confirms: 8 + 13 + 13 = 34 bytes of the client, 16 + 12 = 28 of the server.
fn confirming() -> Script {
    vec![
        says(Client, &[PROTOCOL.to_vec(), open(1)]),
        says(Server, &[method(1, 20, 11, &[0; 4])]),
        says(Client, &[select(1)]),
        says(Server, &[method(1, 85, 11, b"")]),
    ]
}

/// What is found after channel 1 confirms.
fn found_then(script: Script) -> (Vec<Found>, u64) {
    let (all, unsettled) = found(&[confirming(), script].concat());
    assert_eq!(
        all[..2],
        [Found::ChannelOpen { channel: 1, start: 8 }, Found::Select { channel: 1, start: 21 }]
    );
    (all[2..].to_vec(), unsettled)
}

fn confirm(ack: bool, tag: u64, multiple: bool, settles: u64, start: u64) -> Found {
    Found::Confirm(Confirm { channel: 1, ack, tag, multiple, settles, start, end: start + 21 })
}

/// As lapin 4 writes it: handshake, a channel, confirm.select, and each publish in method, header and bodies.
#[test]
fn lapin_is_followed() {
    let script = vec![
        (Client, PROTOCOL.to_vec()),
        says(Server, &[method(0, 10, 10, b"\0")]),
        says(Client, &[method(0, 10, 11, b"\0")]),
        says(Server, &[method(0, 10, 30, b"")]),
        says(Client, &[method(0, 10, 31, b""), method(0, 10, 40, b"")]),
        says(Server, &[method(0, 10, 41, b"")]),
        says(Client, &[open(1)]),
        says(Server, &[method(1, 20, 11, &[0; 4])]),
        says(Client, &[select(1)]),
        says(Server, &[method(1, 85, 11, b"")]),
        says(Client, &[publish(1), header(1, 5), frame(3, 1, b"hello"), bare(1)]),
        says(Client, &[publish(1), header(1, 5), frame(8, 0, b""), frame(3, 1, b"hel"), frame(3, 1, b"lo")]),
        says(Server, &[ack(1, 1, 0), frame(8, 0, b""), ack(1, 3, 1)]),
        says(Client, &[close(1, 200)]),
        says(Server, &[close_ok(1)]),
        says(Client, &[method(0, 10, 50, b"\0\xc8\0\0\0\0\0")]),
        says(Server, &[method(0, 10, 51, b"")]),
    ];
    let (found, unsettled) = found(&script);
    assert_eq!(
        found,
        [
            Found::ChannelOpen { channel: 1, start: 45 },
            Found::Select { channel: 1, start: 58 },
            Found::Publish { channel: 1, tag: Some(1), start: 71 },
            Found::Published { channel: 1, tag: Some(1), end: 127 },
            Found::Publish { channel: 1, tag: Some(2), start: 127 },
            Found::Published { channel: 1, tag: Some(2), end: 170 },
            Found::Publish { channel: 1, tag: Some(3), start: 170 },
            // 20 + 23 + 8 + 11 + 10.
            Found::Published { channel: 1, tag: Some(3), end: 242 },
            confirm(true, 1, false, 1, 65),
            confirm(true, 3, true, 2, 94),
            Found::ChannelClose { by: Client, channel: 1, code: 200, unsettled: 0, start: 242 },
            Found::ConnectionClose { by: Client, code: 200, start: 262 },
        ]
    );
    assert_eq!(unsettled, 0);
}

#[test]
fn confirms_settle_what_is_outstanding() {
    let script = vec![
        says(Client, &vec![bare(1); 6]),
        // 2 alone, then up to 4 without it, then what is settled already, what was never sent, and all that is left.
        says(Server, &[ack(1, 2, 0), nack(1, 4, 0b11), ack(1, 3, 0), ack(1, 9, 0), nack(1, 5, 0b10)]),
        says(Client, &[bare(1), ack(1, 7, 1), nack(1, 7, 1)]),
        says(Server, &[ack(1, 0, 1), ack(1, 0, 0)]),
        says(Client, &[bare(1)]),
    ];
    let (found, unsettled) = found_then(script);
    let confirms: Vec<Found> = found.into_iter().filter(|found| matches!(found, Found::Confirm(_))).collect();
    assert_eq!(
        confirms,
        [
            confirm(true, 2, false, 1, 28),
            confirm(false, 4, true, 3, 49),
            confirm(true, 3, false, 0, 70),
            confirm(true, 9, false, 0, 91),
            confirm(false, 5, false, 1, 112),
            confirm(true, 0, true, 2, 133),
            confirm(true, 0, false, 0, 154),
        ]
    );
    assert_eq!(unsettled, 1);
}

/// A publish counts as outstanding when it is whole; one without confirms never does.
#[test]
fn publishes_are_counted_from_select() {
    let script = vec![
        says(
            Client,
            &[PROTOCOL.to_vec(), open(7), bare(7), select(7), bare(7), select(7), bare(7), publish(7)],
        ),
        says(Client, &[header(7, 3), frame(3, 7, b"ab")]),
    ];
    let (found, unsettled) = found(&script);
    assert_eq!(
        found,
        [
            Found::ChannelOpen { channel: 7, start: 8 },
            Found::Publish { channel: 7, tag: None, start: 21 },
            Found::Published { channel: 7, tag: None, end: 64 },
            Found::Select { channel: 7, start: 64 },
            Found::Publish { channel: 7, tag: Some(1), start: 77 },
            Found::Published { channel: 7, tag: Some(1), end: 120 },
            Found::Select { channel: 7, start: 120 },
            Found::Publish { channel: 7, tag: Some(2), start: 133 },
            Found::Published { channel: 7, tag: Some(2), end: 176 },
            Found::Publish { channel: 7, tag: Some(3), start: 176 },
        ]
    );
    assert_eq!(unsettled, 2);
}

/// The contents of two channels take turns.
#[test]
fn channels_are_told_apart() {
    let script = vec![
        says(Client, &[open(2), select(2), publish(1), publish(2), header(2, 1), header(1, 2)]),
        says(Client, &[frame(3, 1, b"a"), frame(3, 2, b"b"), frame(3, 1, b"c")]),
        says(Server, &[ack(1, 1, 0)]),
    ];
    let (found, unsettled) = found_then(script);
    assert_eq!(
        found,
        [
            Found::ChannelOpen { channel: 2, start: 34 },
            Found::Select { channel: 2, start: 47 },
            Found::Publish { channel: 1, tag: Some(1), start: 60 },
            Found::Publish { channel: 2, tag: Some(1), start: 80 },
            // 60 + 2 × 20 + 2 × 23 = 146, and 9 each.
            Found::Published { channel: 2, tag: Some(1), end: 164 },
            Found::Published { channel: 1, tag: Some(1), end: 173 },
            confirm(true, 1, false, 1, 28),
        ]
    );
    assert_eq!(unsettled, 1);
}

/// The server closes the channel under the client's hands; opened again it counts from 1.
#[test]
fn a_channel_that_the_server_closes_starts_again() {
    let script = vec![
        says(Client, &[bare(1), bare(1), publish(1)]),
        says(Server, &[close(1, 404)]),
        says(Client, &[header(1, 0), bare(1), close_ok(1), bare(1), open(1), select(1), bare(1)]),
        says(Server, &[method(1, 20, 11, &[0; 4]), method(1, 85, 11, b""), ack(1, 1, 0)]),
    ];
    let (found, unsettled) = found_then(script);
    assert_eq!(
        found[5..],
        [
            Found::ChannelClose { by: Server, channel: 1, code: 404, unsettled: 2, start: 28 },
            // 34 + 2 × 43 + 20 = 140, and the header.
            Found::Published { channel: 1, tag: Some(3), end: 163 },
            Found::Publish { channel: 1, tag: None, start: 163 },
            Found::Published { channel: 1, tag: None, end: 206 },
            // After 12 bytes of close-ok and 43 on a closed channel.
            Found::ChannelOpen { channel: 1, start: 261 },
            Found::Select { channel: 1, start: 274 },
            Found::Publish { channel: 1, tag: Some(1), start: 287 },
            Found::Published { channel: 1, tag: Some(1), end: 330 },
            // 28 + 20 + 16 + 12.
            confirm(true, 1, false, 1, 76),
        ]
    );
    assert_eq!(unsettled, 0);
}

/// Until the server agrees to a close it may still confirm.
#[test]
fn a_channel_that_the_client_closes_is_still_confirmed() {
    let close_it = |answer: Vec<u8>| {
        found_then(vec![says(Client, &[bare(1), bare(1), close(1, 200)]), (Server, answer)])
    };
    let closed = Found::ChannelClose { by: Client, channel: 1, code: 200, unsettled: 2, start: 120 };
    let (found, unsettled) = close_it(ack(1, 1, 0));
    assert_eq!((&found[4..], unsettled), ([closed, confirm(true, 1, false, 1, 28)].as_slice(), 1));
    let (found, unsettled) = close_it([close_ok(1), ack(1, 1, 0)].concat());
    assert_eq!((&found[4..], unsettled), ([closed, confirm(true, 1, false, 0, 40)].as_slice(), 0));
}

/// Both close at once: the client's agreement ends it, and the server's changes nothing that came after.
#[test]
fn closes_may_cross() {
    let script = vec![
        says(Client, &[bare(1)]),
        says(Server, &[close(1, 406)]),
        says(Client, &[close(1, 200), close_ok(1), bare(1), open(1), bare(1)]),
        says(Server, &[close_ok(1)]),
        says(Client, &[bare(1)]),
    ];
    let (found, unsettled) = found_then(script);
    assert_eq!(
        found[2..],
        [
            Found::ChannelClose { by: Server, channel: 1, code: 406, unsettled: 1, start: 28 },
            Found::ChannelClose { by: Client, channel: 1, code: 200, unsettled: 0, start: 77 },
            // 77 + 20 + 12, and 43 on a closed channel.
            Found::ChannelOpen { channel: 1, start: 152 },
            Found::Publish { channel: 1, tag: None, start: 165 },
            Found::Published { channel: 1, tag: None, end: 208 },
            Found::Publish { channel: 1, tag: None, start: 208 },
            Found::Published { channel: 1, tag: None, end: 251 },
        ]
    );
    assert_eq!(unsettled, 0);
}

#[test]
fn the_servers_troubles_are_told() {
    let back = [b"\x01\x38\x08NO_ROUTE\x02ex\x01k".as_slice()].concat();
    let script = vec![
        says(Client, &[bare(1)]),
        says(Server, &[method(0, 10, 60, b"\x06memory"), method(0, 10, 61, b"")]),
        // A return has a content, whose body is not looked into.
        says(Server, &[method(1, 60, 50, &back), header(1, 2), frame(3, 1, b"\xce\x01"), ack(1, 1, 0)]),
        says(Server, &[method(0, 10, 50, b"\x01\x40\0\0\0\0\0")]),
    ];
    let (found, unsettled) = found_then(script);
    assert_eq!(
        found[2..],
        [
            Found::Blocked { start: 28 },
            Found::Unblocked { start: 47 },
            Found::Return { channel: 1, code: 312, start: 59 },
            // 59 + 12 + 2 + 9 + 3 + 2 = 87, and 23 + 10.
            confirm(true, 1, false, 1, 120),
            Found::ConnectionClose { by: Server, code: 320, start: 141 },
        ]
    );
    assert_eq!(unsettled, 0);
}

fn opaque(script: &Script) -> (Reason, u64) {
    match found(script).0.last() {
        Some(Found::Opaque { reason, start }) => (*reason, *start),
        other => panic!("{other:?} is not opaque"),
    }
}

#[test]
fn what_cannot_be_read_is_opaque() {
    assert_eq!(opaque(&vec![(Client, b"\x16\x03\x01\x02\0\x01\0\x01\xfc".to_vec())]), (Reason::Encrypted, 0));
    assert_eq!(opaque(&vec![(Client, b"AMQP\x03\x01\0\0".to_vec())]), (Reason::NotTheProtocol, 0));
    assert_eq!(opaque(&vec![says(Server, &[frame(8, 0, b"")])]), (Reason::OutOfStep, 0));
    let other_version = vec![(Client, PROTOCOL.to_vec()), (Server, b"AMQP\0\0\x08\0".to_vec())];
    assert_eq!(opaque(&other_version), (Reason::NotTheProtocol, 0));
    let then = |peer, bytes: Vec<u8>| opaque(&[confirming(), vec![(peer, bytes)]].concat());
    assert_eq!(then(Client, frame(4, 1, b"")), (Reason::NotTheProtocol, 34));
    assert_eq!(then(Client, frame(1, 1, b"\0\x3c\0")), (Reason::NotTheProtocol, 34));
    assert_eq!(then(Server, method(1, 60, 80, b"\0\0\0\0\0\0\0\x01")), (Reason::NotTheProtocol, 28));
    assert_eq!(then(Client, header(1, 0)), (Reason::OutOfStep, 34));
    assert_eq!(then(Client, frame(3, 1, b"x")), (Reason::OutOfStep, 34));
    assert_eq!(then(Client, [publish(1), frame(3, 1, b"x")].concat()), (Reason::OutOfStep, 54));
    let more = [publish(1), header(1, 1), frame(3, 1, b"xy")].concat();
    assert_eq!(then(Client, more), (Reason::OutOfStep, 77));
    let mut unended = frame(8, 0, b"");
    unended[7] = 0;
    assert_eq!(then(Server, unended), (Reason::NotTheProtocol, 35));
}

#[test]
fn an_opaque_connection_is_let_through() {
    let mut conversation = Conversation::new();
    conversation.client(&[PROTOCOL.to_vec(), open(1), select(1), bare(1)].concat());
    conversation.server(b"\x01\0");
    assert_eq!((conversation.client_settled(), conversation.server_settled()), (77, 0));
    assert_eq!(conversation.unsettled(), 1);
    assert_eq!(conversation.client(b"nonsense").len(), 1);
    assert_eq!((conversation.client_settled(), conversation.server_settled()), (85, 2));
    assert_eq!(conversation.server(&ack(1, 1, 0)), []);
    assert_eq!((conversation.unsettled(), conversation.server_settled()), (0, 23));
}

/// Only heads and methods are held back, bodies go through as they come.
#[test]
fn bodies_go_through_as_they_come() {
    let script = confirming();
    let (mut conversation, _) = hear_all(script.iter().map(|(peer, bytes)| (*peer, bytes.as_slice())));
    let begin = [publish(1), header(1, 1 << 40), frame(3, 1, &[7; 100_000])].concat();
    assert_eq!(conversation.client(&begin[..18]), []);
    assert_eq!(conversation.client_settled(), 34);
    assert_eq!(conversation.client(&begin[18..19]), [Found::Publish { channel: 1, tag: Some(1), start: 34 }]);
    assert_eq!(conversation.client_settled(), 53);
    assert_eq!(conversation.client(&begin[19..5000]), []);
    assert_eq!(conversation.client_settled(), 5034);
    assert_eq!(conversation.client(&begin[5000..]), []);
    assert_eq!(conversation.client_settled(), 34 + begin.len() as u64);
    assert!(conversation.client.kept().is_empty());
}

#[test]
fn what_is_remembered_has_limits() {
    let mut channels = Conversation::new();
    channels.client(PROTOCOL);
    for number in 1..=4096 {
        assert_eq!(channels.client(&open(number)).len(), 1);
    }
    assert_eq!(channels.client(&open(4096)).len(), 1);
    assert!(matches!(channels.client(&open(4097))[..], [Found::Opaque { reason: Reason::TooMany, .. }]));

    let mut gaps = hear_all(confirming().iter().map(|(peer, bytes)| (*peer, bytes.as_slice()))).0;
    for _ in 0..40_000 {
        gaps.client(&bare(1));
    }
    assert_eq!((gaps.unsettled(), gaps.runs), (40_000, 1));
    // Each takes one out of the middle.
    for tag in 1..16_384 {
        gaps.server(&ack(1, 2 * tag, 0));
    }
    assert_eq!((gaps.unsettled(), gaps.runs), (40_000 - 16_383, 16_384));
    let last = gaps.server(&ack(1, 2 * 16_384, 0));
    assert!(matches!(last[..], [Found::Opaque { reason: Reason::TooMany, .. }]));
}

#[test]
fn garbage_does_no_harm() {
    for seed in 1..=300 {
        let mut dice = Dice(seed);
        let mut noise = Conversation::new();
        let mut talk = Conversation::new();
        noise.client(PROTOCOL);
        talk.client(PROTOCOL);
        for _ in 0..200 {
            let peer = if dice.below(2) == 0 { Client } else { Server };
            let length = dice.below(100);
            hear(&mut noise, peer, &dice.bytes(length));
            // Frames of the protocol in no order, with no sense.
            let channel = dice.below(3) as u16;
            let tag = dice.below(12) as u64;
            let bits = dice.below(4) as u8;
            let one = match dice.below(12) {
                0 => open(channel),
                1 => select(channel),
                2 => publish(channel),
                3 => close(channel, 200),
                4 => close_ok(channel),
                5 => ack(channel, tag, bits),
                6 => nack(channel, tag, bits),
                7 if dice.below(9) == 0 => header(channel, tag),
                8 if dice.below(9) == 0 => frame(3, channel, b"x"),
                9 => method(channel, dice.next() as u16 % 90, dice.next() as u16 % 130, b"long enough"),
                _ => bare(channel),
            };
            hear(&mut talk, peer, &one);
        }
    }
}

/// One byte of a real session is wrong.
#[test]
fn damage_does_no_harm() {
    let mut script = confirming();
    script.push(says(Client, &[publish(1), header(1, 2), frame(3, 1, b"ab"), bare(1), bare(1)]));
    script.push(says(Server, &[ack(1, 2, 0), nack(1, 3, 1), close(1, 404)]));
    script.push(says(Client, &[close_ok(1), open(1), select(1), bare(1)]));
    for speech in 0..script.len() {
        for at in 0..script[speech].1.len() {
            for wrong in [0x01, 0x40, 0x80, 0xff] {
                let mut script = script.clone();
                script[speech].1[at] ^= wrong;
                hear_all(script.iter().map(|(peer, bytes)| (*peer, bytes.as_slice())));
            }
        }
    }
}
