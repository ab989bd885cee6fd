use super::*;

fn env(variables: &[(&str, &str)]) -> Environment {
    Environment::of(variables.iter().map(|(name, value)| ((*name).into(), (*value).into())))
}

fn from(variables: &[(&str, &str)]) -> Result<Config, String> {
    Config::from_environment(&env(variables)).map_err(|e| e.to_string())
}

fn refused(variables: &[(&str, &str)]) -> String {
    from(variables).expect_err("the settings break a rule")
}

#[test]
fn defaults_are_valid_and_an_empty_environment_gives_them() {
    let built = Config::builder().id("a").build().unwrap();
    assert_eq!(Config { id: "a".to_owned(), ..from(&[]).unwrap() }, built);
    assert_eq!((built.batch_size.get(), built.pipeline_depth.get()), (100, 32));
    assert_eq!(built.lease_ttl, Duration::from_secs(30));
}

#[test]
fn both_families_of_names_reach_every_setting() {
    for prefix in ["DRAINER_", "CANOPY_MQ_DRAINER_"] {
        let set = [
            ("BATCH_SIZE", "7"),
            ("PIPELINE_DEPTH", "5"),
            ("LEASE_TTL_SECS", "4"),
            ("POLL_INTERVAL_MS", "11"),
            ("CONFIRM_TIMEOUT_MS", "12"),
            ("STATEMENT_TIMEOUT_MS", "13"),
            ("STOP_WITHIN_MS", "14"),
            ("ID", "me"),
            ("EXCHANGE", "news"),
        ];
        let named: Vec<(String, &str)> = set.iter().map(|(n, v)| (format!("{prefix}{n}"), *v)).collect();
        let pairs: Vec<(&str, &str)> = named.iter().map(|(n, v)| (n.as_str(), *v)).collect();
        let expected = Config::builder()
            .batch_size(7)
            .pipeline_depth(5)
            .lease_ttl(Duration::from_secs(4))
            .poll_interval(Duration::from_millis(11))
            .confirm_timeout(Duration::from_millis(12))
            .statement_timeout(Duration::from_millis(13))
            .stop_within(Duration::from_millis(14))
            .id("me")
            .exchange("news");
        assert_eq!(from(&pairs).unwrap(), expected.build().unwrap());
    }
}

#[test]
fn two_names_of_one_setting_may_only_agree() {
    let agree = [("DRAINER_BATCH_SIZE", "7"), ("CANOPY_MQ_DRAINER_BATCH_SIZE", "7")];
    assert_eq!(from(&agree).unwrap().batch_size.get(), 7);
    assert_eq!(
        refused(&[("DRAINER_BATCH_SIZE", "7"), ("CANOPY_MQ_DRAINER_BATCH_SIZE", "8")]),
        "DRAINER_BATCH_SIZE and CANOPY_MQ_DRAINER_BATCH_SIZE name one setting and differ (\"7\" and \"8\"); \
         unset one of them"
    );
}

#[test]
fn a_conflict_of_urls_hides_both() {
    let env = env(&[("DRAINER_AMQP_URL", "amqp://u:secret@h"), ("CANOPY_MQ_DRAINER_AMQP_URL", "amqp://h")]);
    let error = env.text("AMQP_URL").unwrap_err().to_string();
    assert!(error.contains("values hidden") && !error.contains("secret"), "{error}");
}

#[test]
fn zero_is_refused_under_the_name_that_was_used() {
    assert_eq!(
        refused(&[("CANOPY_MQ_DRAINER_BATCH_SIZE", "0")]),
        "CANOPY_MQ_DRAINER_BATCH_SIZE is 0: it must be 1 to 10000; set it within these bounds, or leave it out for \
         the default"
    );
    let zero = Config::builder().pipeline_depth(0).build().unwrap_err().to_string();
    assert!(zero.starts_with("DRAINER_PIPELINE_DEPTH is 0: it must be 1 to 10000"), "{zero}");
    for name in
        ["POLL_INTERVAL_MS", "CONFIRM_TIMEOUT_MS", "STATEMENT_TIMEOUT_MS", "STOP_WITHIN_MS", "LEASE_TTL_SECS"]
    {
        let error = refused(&[(&format!("DRAINER_{name}"), "0")]);
        assert!(error.starts_with(&format!("DRAINER_{name} is 0 ms: it must be ")), "{error}");
    }
}

#[test]
fn what_is_too_large_is_refused() {
    assert!(refused(&[("DRAINER_BATCH_SIZE", "10001")]).contains("1 to 10000"));
    assert!(refused(&[("DRAINER_BATCH_SIZE", "4294967296")]).contains("whole number"));
    assert!(refused(&[("DRAINER_LEASE_TTL_SECS", "86401")]).contains("86400000 ms"));
    assert!(refused(&[("DRAINER_ID", &"x".repeat(56))]).contains("1 to 55 bytes"));
    assert!(refused(&[("DRAINER_EXCHANGE", "")]).contains("1 to 255 bytes"));
    assert!(refused(&[("DRAINER_ID", "a\nb")]).contains("control characters"));
}

#[test]
fn a_number_with_a_unit_is_refused() {
    let error = refused(&[("DRAINER_POLL_INTERVAL_MS", "200ms")]);
    assert!(error.starts_with("DRAINER_POLL_INTERVAL_MS is \"200ms\": it must be a whole number"), "{error}");
}

#[test]
fn the_lease_must_hold_three_full_pipelines() {
    let lease = |millis, depth| {
        Config::builder().lease_ttl(Duration::from_millis(millis)).pipeline_depth(depth).build()
    };
    assert!(lease(9600, 32).is_ok());
    assert_eq!(
        lease(9599, 32).unwrap_err().to_string(),
        "DRAINER_LEASE_TTL_SECS is 9599 ms: it must be at least 3 x DRAINER_PIPELINE_DEPTH x 100 ms = 9600 ms, so \
         that a slow batch does not outlive its own lease; raise DRAINER_LEASE_TTL_SECS or lower \
         DRAINER_PIPELINE_DEPTH (now 32) to at most 31"
    );
    // The reference's rule does not look at the batch: kept.
    assert!(
        Config::builder()
            .batch_size(1000)
            .pipeline_depth(10)
            .lease_ttl(Duration::from_secs(3))
            .build()
            .is_ok()
    );
}

#[test]
fn default_ids_differ_and_fit_a_session_name() {
    let (one, other) = (default_id(), default_id());
    assert_ne!(one, other);
    assert!(one.contains(&std::process::id().to_string()));
    let config = Config::builder().build().unwrap();
    assert!(config.session_name().len() <= 63, "{}", config.session_name());
}

#[test]
fn unknown_names_are_told_apart() {
    let env =
        env(&[("DRAINER_BATCHSIZE", "1"), ("CANOPY_MQ_DRAINER_ID", "x"), ("DRAINER_SERVICE_HOST", "h")]);
    assert_eq!(env.unknown(), ["DRAINER_BATCHSIZE", "DRAINER_SERVICE_HOST"]);
}
