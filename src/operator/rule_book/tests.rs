use super::*;
use engine::HashSeed;

const NOW: Time = Time::from_ns(1_000);

fn book(file: &str) -> RuleBook {
    RuleBook { file: parse_file(file.as_bytes()).unwrap(), ..RuleBook::default() }
}

fn set(text: &str) -> RuleOrder {
    RuleOrder::Set { rule: Rule::parse(text).unwrap(), for_s: None }
}

fn in_force(book: &RuleBook) -> Vec<String> {
    book.in_force().iter().map(ToString::to_string).collect()
}

#[test]
fn an_order_replaces_in_place_or_goes_in_front() {
    let mut book = book("a a*\nb b* deny\n");
    for (order, expected) in [
        (set("b b* total=2"), vec!["a a*", "b b* total=2"]),
        (set("c c* deny"), vec!["c c* deny", "a a*", "b b* total=2"]),
        (set("d d* deny"), vec!["d d* deny", "c c* deny", "a a*", "b b* total=2"]),
        (set("c c* total=1"), vec!["d d* deny", "c c* total=1", "a a*", "b b* total=2"]),
        (RuleOrder::Off("c".into()), vec!["d d* deny", "a a*", "b b* total=2"]),
        (RuleOrder::Off("a".into()), vec!["d d* deny", "b b* total=2"]),
        (RuleOrder::Reset("a".into()), vec!["d d* deny", "a a*", "b b* total=2"]),
        (set("b b*"), vec!["d d* deny", "a a*", "b b*"]),
        (RuleOrder::Reset("b".into()), vec!["d d* deny", "a a*", "b b* deny"]),
        (RuleOrder::Reset("d".into()), vec!["a a*", "b b* deny"]),
    ] {
        book.execute(order.clone(), NOW).unwrap();
        assert_eq!(in_force(&book), expected, "{order:?}");
    }
    assert!(book.execute(RuleOrder::Off("x".into()), NOW).is_err());
    let mut engine = Engine::new(HashSeed::new([1, 2]), NOW);
    book.apply(&mut engine, NOW, || {});
    let groups: Vec<&String> = engine.rules().groups().iter().map(|group| &group.name).collect();
    assert_eq!(groups, ["other", "a", "b"]);
}

#[test]
fn an_order_without_settings_needs_the_file_to_have_its_name() {
    let mut book = book("a a* deny\n");
    book.execute(set("b b* deny"), NOW).unwrap();
    // The name of another order does not help.
    for nothing in ["b b*", "c *"] {
        let refused = book.execute(set(nothing), NOW).unwrap_err();
        assert!(matches!(refused, RulesError::NoSettings(_)), "{refused}");
    }
    assert_eq!(in_force(&book), ["b b* deny", "a a* deny"]);
    book.execute(set("a x*"), NOW).unwrap();
    assert_eq!(in_force(&book), ["b b* deny", "a x*"]);
}

#[test]
fn orders_end_only_if_the_rules_of_the_file_change() {
    for (file, stay) in [
        ("a a*\nb b* deny\n", true),
        ("# both\n\n  a\ta*   # one\nb b*  deny", true),
        ("b b* deny\na a*\n", false),
        ("a a*\nb b* deny total=1\n", false),
        ("a a*\n", false),
        ("", false),
    ] {
        let mut book = book("a a*\nb b* deny\n");
        book.execute(RuleOrder::Off("b".into()), NOW).unwrap();
        book.execute(set("c c* deny"), NOW).unwrap();
        book.execute(set_for_a_minute("c c* total=1"), NOW).unwrap();
        let before = in_force(&book);
        let new = parse_file(file.as_bytes()).unwrap();
        let ended = book.resume(new.clone(), Vec::new());
        if stay {
            assert_eq!((ended, in_force(&book)), (Vec::new(), before), "{file}");
        } else {
            let orders = ["RULE SET c FOR 1m c* total=1", "RULE SET c c* deny", "RULE OFF b"];
            assert_eq!((ended, book.in_force()), (orders.map(str::to_owned).to_vec(), new));
        }
    }
}

fn set_for_a_minute(text: &str) -> RuleOrder {
    RuleOrder::Set { rule: Rule::parse(text).unwrap(), for_s: Some(60) }
}

#[test]
fn an_order_for_a_time_ends_in_its_first_turn() {
    let mut book = book("a a*\n");
    book.execute(set_for_a_minute("a a* total=1"), NOW).unwrap();
    // Given again, it has its whole time.
    let again = NOW.plus_seconds(30);
    book.execute(set_for_a_minute("a a* deny"), again).unwrap();
    assert_eq!(book.next_deadline(), Some(again.plus_seconds(60)));
    assert_eq!(book.expire(again.plus_seconds(59)), [""; 0]);
    assert_eq!(in_force(&book), ["a a* deny"]);
    assert_eq!(book.expire(again.plus_seconds(60)), ["a"]);
    assert_eq!((in_force(&book), book.next_deadline()), (vec!["a a*".to_owned()], None));
}

#[test]
fn each_rule_is_listed_with_where_it_comes_from() {
    let max_hold = vec![Rule::parse_max_hold("*=9").unwrap()];
    let mut book = RuleBook { max_hold, ..book("a a*\nb b* deny\n") };
    for order in [
        set("c c* deny"),
        set_for_a_minute("c c* total=1"),
        RuleOrder::Off("b".into()),
        set("d d* deny"),
    ] {
        book.execute(order, NOW).unwrap();
    }
    let sources = book.sources().into_iter();
    let listed: Vec<_> = sources.map(|it| (it.rule.to_string(), it.origin)).collect();
    let until = Some(NOW.plus_seconds(60));
    let expected = [
        ("d d* deny", RuleOrigin::Set { until: None }),
        ("c c* total=1", RuleOrigin::Set { until }),
        ("a a*", RuleOrigin::File),
        ("- * max-hold=9s", RuleOrigin::Option),
        ("b b* deny", RuleOrigin::Off),
        ("c c* deny", RuleOrigin::Below),
    ];
    assert_eq!(listed, expected.map(|(rule, origin)| (rule.to_owned(), origin)));
}

/// What an operator hears, and what is in force then.
#[test]
fn a_lasting_order_comes_back_when_the_one_over_it_ends() {
    let off = || RuleOrder::Off("a".to_owned());
    let reset = || RuleOrder::Reset("a".to_owned());
    for (file, lasting, over, back, at_last) in [
        (
            "",
            set("a a* total=9"),
            "a a* total=9",
            "a a* total=9, set by an earlier order",
            "a is gone",
        ),
        (
            "a b* deny",
            set("a a* total=9"),
            "a a* total=9",
            "a a* total=9, set by an earlier order",
            "a b* deny",
        ),
        ("a b* deny", off(), "", "a is off", "a b* deny"),
    ] {
        let mut book = book(file);
        let mut execute = |order| book.execute(order, NOW);
        execute(lasting.clone()).unwrap();
        execute(set_for_a_minute("a a* total=1")).unwrap();
        let again = execute(set_for_a_minute("a a* total=2")).unwrap();
        assert_eq!(again, "a a* total=2, for 1m");
        assert_eq!(execute(reset()).unwrap(), back);
        execute(set_for_a_minute("a a* total=3")).unwrap();
        assert_eq!(book.orders().endless, 1);
        assert_eq!(in_force(&book), ["a a* total=3"]);
        assert_eq!(book.expire(NOW.plus_seconds(60)), ["a"]);
        assert_eq!(in_force(&book).join("\n"), over);
        assert_eq!(book.execute(reset(), NOW).unwrap(), at_last);
        assert_eq!(book.orders(), RuleOrders::default());
        assert_eq!(in_force(&book).join("\n"), file);
    }
}

#[test]
fn another_pattern_gets_another_name() {
    let longest = "a".repeat(NAME_BYTES_MAX);
    for (name, suggested) in [
        ("flood", "flood4"),
        ("flood3", "flood4"),
        ("api-9", "api-2"),
        (&*longest, &*format!("{}2", &longest[1..])),
    ] {
        let mut book = book("flood2 z*\nx y* deny\n");
        book.execute(set("flood3 x* deny"), NOW).unwrap();
        for order in [set, set_for_a_minute] {
            if name != "flood3" {
                book.execute(order(&format!("{name} x* deny")), NOW).unwrap();
            }
            let before = book.clone();
            for other in [set, set_for_a_minute] {
                let why = book.execute(other(&format!("{name} y* deny")), NOW).unwrap_err();
                let expected = format!(
                    "{name} x* deny is in force by an order, and has another pattern: \
                     choose another name, such as {suggested}"
                );
                assert_eq!(why.to_string(), expected);
                assert_eq!(book, before);
            }
        }
        // What is off limits nothing, and a rule of the file comes back.
        book.execute(RuleOrder::Off(name.to_owned()), NOW).unwrap();
        book.execute(set(&format!("{name} y* deny")), NOW).unwrap();
        book.execute(set("x z* deny"), NOW).unwrap();
    }
}

/// Every order, one after another, as far as four orders reach.
#[test]
fn no_order_takes_another_pattern_or_a_lasting_order_away() {
    let orders = [
        set("a p* total=1"),
        set("a q* total=2"),
        set_for_a_minute("a p* total=3"),
        set_for_a_minute("a q* deny"),
        RuleOrder::Off("a".to_owned()),
        RuleOrder::Reset("a".to_owned()),
    ];
    let lasting = |book: &RuleBook| book.orders_about("a").and_then(Override::lasting).cloned();
    let pattern = |book: &RuleBook| {
        let rule = book.orders_about("a").and_then(Override::in_force);
        rule.map(|rule| rule.pattern.clone())
    };
    let mut books = vec![RuleBook::default(), book("a p* deny"), book("a r*\nb p*")];
    for _ in 0..4 {
        let mut next = Vec::new();
        for (before, order) in books.iter().flat_map(|b| orders.iter().map(move |o| (b, o))) {
            let mut after = before.clone();
            let is_done = after.execute(order.clone(), NOW).is_ok();
            match order {
                _ if !is_done => assert_eq!(&after, before, "{order:?}"),
                RuleOrder::Set { rule, for_s } => {
                    assert!(after.in_force().contains(rule));
                    assert!(pattern(before).is_none_or(|p| p == rule.pattern), "{before:?}");
                    if for_s.is_some() {
                        assert_eq!(lasting(&after), lasting(before));
                    }
                }
                RuleOrder::Off(name) => {
                    assert!(after.in_force().iter().all(|rule| rule.name != *name));
                }
                RuleOrder::Reset(_) => {}
            }
            let mut later = after.clone();
            later.expire(NOW.plus_seconds(60));
            assert_eq!((lasting(&later), later.next_deadline()), (lasting(&after), None));
            assert_eq!(later.orders().endless, usize::from(lasting(&after).is_some()));
            let text = serde_json::to_string(&after).unwrap();
            assert_eq!(serde_json::from_str::<RuleBook>(&text).unwrap(), after);
            next.push(after);
        }
        books = next;
    }
}

#[test]
fn a_snapshot_that_no_orders_make_is_refused() {
    let order = |rule: &str| format!(r#"{{"rule":"{rule}","since_ns":1,"until_ns":2}}"#);
    let lasting = |rule: &str| format!(r#"{{"change":{{"set":"{rule}"}},"since_ns":1}}"#);
    let book =
        |orders: &str| serde_json::from_str::<RuleBook>(&format!(r#"{{"orders":[{orders}]}}"#));
    let (timed, below) = (order("a p* deny"), lasting("a p* total=1"));
    let good = format!(r#"{{"timed":[{timed},{below}]}},{{"lasting":{}}}"#, lasting("b *"));
    assert_eq!(book(&good).unwrap().orders().endless, 2);
    for bad in [
        format!(r#"{{"timed":[{timed},{}]}}"#, lasting("b p*")),
        format!(r#"{{"timed":[{timed},null]}},{{"lasting":{below}}}"#),
        format!(r#"{{"lasting":{}}}"#, lasting("- p* max-hold=1s")),
        format!(r#"{{"timed":[null,{below}]}}"#),
        r#"{"lasting":{"change":{},"since_ns":1}}"#.to_owned(),
        r#"{"lasting":{"change":"off","since_ns":1}}"#.to_owned(),
        r#"{}"#.to_owned(),
    ] {
        assert!(book(&bad).is_err(), "{bad}");
    }
    for bad in [r#"{"max_hold":["a * max-hold=1s"]}"#, r#"{"file":["- * max-hold=1s"]}"#] {
        assert!(serde_json::from_str::<RuleBook>(bad).is_err(), "{bad}");
    }
}

#[test]
fn orders_are_counted_from_when_each_was_given() {
    let mut book = book("a a*\nb b* deny\n");
    assert_eq!(book.orders(), RuleOrders::default());
    let at = |n| Time::from_ns(n);
    for (order, n, expected) in [
        (set_for_a_minute("a a* deny"), 1, (1, Some(1), 0, None)),
        (set("c c* deny"), 2, (2, Some(1), 1, Some(2))),
        (RuleOrder::Off("b".into()), 3, (3, Some(1), 2, Some(2))),
        // A new order about the same rule counts from when it was given.
        (RuleOrder::Off("c".into()), 4, (3, Some(1), 2, Some(3))),
        (RuleOrder::Off("a".into()), 5, (3, Some(3), 3, Some(3))),
        (RuleOrder::Reset("b".into()), 6, (2, Some(4), 2, Some(4))),
        // One that lies below another counts too.
        (set_for_a_minute("a a* deny"), 7, (2, Some(4), 2, Some(4))),
    ] {
        book.execute(order.clone(), at(n)).unwrap();
        let RuleOrders { rules, since, endless, endless_since } = book.orders();
        let [since, endless_since] = [since, endless_since].map(|time| time.map(Time::as_ns));
        assert_eq!((rules, since, endless, endless_since), expected, "{order:?}");
    }
    // A hot restart hands over when.
    let text = serde_json::to_string(&book).unwrap();
    assert_eq!(serde_json::from_str::<RuleBook>(&text).unwrap().orders(), book.orders());
}

#[test]
fn an_order_that_makes_too_many_rules_changes_nothing() {
    let full: String = (0..RULES_MAX).map(|n| format!("r{n} *\n")).collect();
    let mut book = book(&full);
    assert!(book.execute(set("new * deny"), NOW).unwrap_err().to_string().contains("more than 64"));
    assert_eq!(in_force(&book).len(), RULES_MAX);
    // Rules that are off also count: names must not pile up.
    let mut other = RuleBook::default();
    for n in 0..RULES_MAX {
        other.execute(set(&format!("x{n} * deny")), NOW).unwrap();
        other.execute(RuleOrder::Off(format!("x{n}")), NOW).unwrap();
    }
    assert!(other.execute(set("new * deny"), NOW).unwrap_err().to_string().contains("set or off"));
    other.execute(RuleOrder::Reset("x7".into()), NOW).unwrap();
    other.execute(set("new * deny"), NOW).unwrap();
    book.execute(RuleOrder::Off("r0".into()), NOW).unwrap();
    book.execute(set("new * deny"), NOW).unwrap();
    assert!(book.execute(RuleOrder::Reset("r0".into()), NOW).is_err());
    assert_eq!(in_force(&book).len(), RULES_MAX);
}
