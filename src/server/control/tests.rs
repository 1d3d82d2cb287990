use super::*;

#[test]
fn requests_are_read_exactly() {
    let restart = |list: &[&str]| Ok(Request::Restart(Some(list.iter().map(Into::into).collect())));
    assert_eq!(parse("HELP"), Ok(Request::Help));
    assert_eq!(parse("DRAIN"), Ok(Request::Drain));
    assert_eq!(parse("DRAINED"), Ok(Request::Drained));
    assert_eq!(parse("UNDRAIN"), Ok(Request::Undrain));
    assert_eq!(parse("RESTART"), Ok(Request::Restart(None)));
    assert_eq!(parse(r#"RESTART ["-l","::"]"#), restart(&["-l", "::"]));
    let limits = vec!["a*=1".parse().unwrap(), "*=60".parse().unwrap()];
    assert_eq!(parse("MAX-HOLD a*=1 *=60"), Ok(Request::MaxHold(Some(limits))));
    assert_eq!(parse("MAX-HOLD none"), Ok(Request::MaxHold(Some(Vec::new()))));
    assert_eq!(parse("MAX-HOLD"), Ok(Request::MaxHold(None)));
    assert_eq!(parse("LOG"), Ok(Request::Log(None)));
    assert_eq!(parse("LOG debug"), Ok(Request::Log(Some("debug".to_owned()))));
    for bad in ["", "restart", "RESTART now", "DRAIN now", "RESTART {}", "RESTARTED", "MAX-HOLD k"]
    {
        assert!(parse(bad).is_err(), "{bad:?}");
    }
}
