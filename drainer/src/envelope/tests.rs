use super::*;

fn event() -> Event {
    Event {
        id: Uuid::from_u128(7),
        event_type: EventType::new("appeal.lodged").unwrap(),
        occurred_at: "2026-02-03T04:05:06.789Z".parse().unwrap(),
        key: Some("k".to_owned()),
        subject: None,
        headers: BTreeMap::from([("tenant".to_owned(), "north".to_owned())]),
        data: RawValue::from_string(r#"{"n":1.10}"#.to_owned()).unwrap(),
    }
}

fn refused(event: &Event) -> String {
    event.check(&event.to_json()).expect_err("the event breaks a rule").to_string()
}

#[test]
fn the_envelope_is_flat_json_without_what_is_empty() {
    assert_eq!(
        event().to_json(),
        r#"{"id":"00000000-0000-0000-0000-000000000007","event_type":"appeal.lodged","occurred_at":"2026-02-03T04:05:06.789Z","key":"k","headers":{"tenant":"north"},"data":{"n":1.10}}"#
    );
}

#[test]
fn a_stored_event_becomes_the_message() {
    let event = event();
    let stored = RawValue::from_string(event.to_json()).unwrap();
    let message = Message::of_row(event.id, &stored).unwrap();
    assert_eq!(message.body, event.to_json().into_bytes());
    assert_eq!(message.routing_key.as_str(), "appeal.lodged");
    let properties = message.properties;
    assert_eq!(properties.message_id().as_ref().unwrap().as_str(), event.id.to_string());
    assert_eq!(properties.kind().as_ref().unwrap().as_str(), "appeal.lodged");
    assert_eq!(*properties.timestamp(), Some(1_770_091_506));
    assert_eq!(*properties.delivery_mode(), Some(2));
    assert_eq!(properties.content_type().as_ref().unwrap().as_str(), "application/json");
    assert_eq!(properties.headers().as_ref().unwrap().inner().len(), 2);
}

#[test]
fn every_publish_has_an_id_of_its_own() {
    let event = event();
    let stored = RawValue::from_string(event.to_json()).unwrap();
    let id = || {
        let properties = Message::of_row(event.id, &stored).unwrap().properties;
        properties.headers().as_ref().unwrap().inner()[PUBLISH_ID_HEADER].clone()
    };
    assert_ne!(id(), id());
}

#[test]
fn the_routing_key_has_1_to_255_bytes() {
    assert!(EventType::new("x".repeat(255)).is_ok());
    assert_eq!(
        EventType::new("").unwrap_err().to_string(),
        "event_type has 0 bytes; it must have 1 to 255 bytes, because it is the AMQP routing key"
    );
    assert!(EventType::new("é".repeat(128)).is_err(), "bytes count, not characters");
}

#[test]
fn what_does_not_fit_is_refused_before_the_database_sees_it() {
    let large = |bytes| Some("x".repeat(bytes));
    assert!(event().check("{}").is_ok());
    assert!(refused(&Event { key: large(1025), ..event() }).starts_with("key has 1025 bytes"));
    assert!(refused(&Event { subject: large(1025), ..event() }).starts_with("subject has 1025 bytes"));
    let header = |name: &str, value: String| BTreeMap::from([(name.to_owned(), value)]);
    assert!(refused(&Event { headers: header("", String::new()), ..event() }).contains("header's name"));
    assert!(refused(&Event { headers: header(&"x".repeat(256), String::new()), ..event() }).contains("256"));
    assert!(refused(&Event { headers: header("a", "x".repeat(32 * 1024)), ..event() }).contains("32769"));
    assert!(
        refused(&Event { headers: header("X-Publish-Id", String::new()), ..event() })
            .contains("x-publish-id")
    );
    let data = RawValue::from_string(format!("\"{}\"", "x".repeat(ENVELOPE_BYTES))).unwrap();
    assert!(refused(&Event { data, ..event() }).contains("16 MiB"));
}

#[test]
fn nul_is_found_where_json_says_it() {
    for (json, nul) in [
        (r#""\u0000""#, true),
        (r#""a\\\u0000""#, true),
        (r#""\\u0000""#, false),
        (r#""\u00001""#, true),
        (r#""u0000""#, false),
        (r#""\\""#, false),
    ] {
        assert_eq!(holds_nul(json), nul, "{json}");
    }
    let data = RawValue::from_string(r#""\u0000""#.to_owned()).unwrap();
    assert!(refused(&Event { data, ..event() }).contains("NUL"));
    assert!(refused(&Event { key: Some("\0".to_owned()), ..event() }).contains("NUL"));
}

#[test]
fn a_row_that_is_no_event_says_why() {
    let why = |json: String| {
        let stored = RawValue::from_string(json).unwrap();
        Message::of_row(Uuid::from_u128(7), &stored).err().expect("poison").to_string()
    };
    assert!(why(r#"{"hello":1}"#.to_owned()).starts_with("deserialise: missing field `id`"));
    assert!(why("[]".to_owned()).starts_with("deserialise: "));
    assert!(why(event().to_json().replace("appeal.lodged", "")).contains("event_type has 0 bytes"));
    assert!(why(event().to_json().replace("000007", "000008")).contains("not the row's"));
    assert!(why(event().to_json().replace("tenant", PUBLISH_ID_HEADER)).contains("x-publish-id"));
}

#[test]
fn an_event_from_before_1970_has_no_timestamp_property() {
    let event = Event { occurred_at: "1969-12-31T23:59:59Z".parse().unwrap(), ..event() };
    let stored = RawValue::from_string(event.to_json()).unwrap();
    assert_eq!(*Message::of_row(event.id, &stored).unwrap().properties.timestamp(), None);
}

proptest::proptest! {
    /// Whatever text an event carries comes out of the message as it went in.
    #[test]
    fn any_text_survives_the_way_through_json(key in ".{0,200}", name in "[^\0]{1,50}", value in ".{0,200}") {
        proptest::prop_assume!(!name.eq_ignore_ascii_case(PUBLISH_ID_HEADER));
        let event = Event { key: Some(key), headers: BTreeMap::from([(name, value)]), ..event() };
        let stored = RawValue::from_string(event.to_json()).unwrap();
        proptest::prop_assert_eq!(Message::of_row(event.id, &stored).unwrap().body, event.to_json().into_bytes());
    }
}
