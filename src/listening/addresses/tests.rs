use super::*;
use crate::options::Task;

/// The addresses of clients and of HTTP, or the error.
fn addresses(words: &str) -> Result<[Vec<String>; 2], String> {
    let words = std::iter::once("poolcounterd").chain(words.split(' '));
    let Ok(Task::Serve(options)) = Task::from_words(words) else { panic!("not options") };
    let wanted = wanted(&options).map_err(|e| e.to_string())?;
    Ok([Purpose::Clients, Purpose::Http].map(|purpose| {
        let of_it = wanted.iter().filter(|one| one.purpose() == purpose);
        of_it.filter_map(Wanted::tcp_address).map(|address| address.to_string()).collect()
    }))
}

#[test]
fn addresses_that_another_one_serves_are_left_out() {
    for (list, wanted) in [
        ("127.0.0.1", &["127.0.0.1:7531"][..]),
        ("127.0.0.1,127.0.0.2,127.0.0.1", &["127.0.0.1:7531", "127.0.0.2:7531"]),
        ("0.0.0.0,127.0.0.1", &["0.0.0.0:7531"]),
        ("127.0.0.1,0.0.0.0,::1", &["0.0.0.0:7531", "[::1]:7531"]),
        ("::", &["[::]:7531"]),
        ("::1,::,127.0.0.1", &["[::]:7531"]),
        ("::,0.0.0.0,127.0.0.1,::1", &["[::]:7531"]),
        ("::ffff:127.0.0.1,127.0.0.1", &["127.0.0.1:7531"]),
        ("::ffff:0.0.0.0,::1", &["0.0.0.0:7531", "[::1]:7531"]),
        ("0.0.0.0,127.0.0.1,127.0.0.1 -p 0", &["0.0.0.0:0"]),
    ] {
        let [clients, http] = addresses(&format!("-l {list}")).expect("addresses");
        assert_eq!(clients, wanted, "{list}");
        assert_eq!(http, [""; 0], "{list}");
    }
}

#[test]
fn http_addresses_that_another_one_serves_are_left_out() {
    for (words, wanted) in [
        ("--http 127.0.0.1:1 --http 127.0.0.1:1", &["127.0.0.1:1"][..]),
        ("--http 127.0.0.1:1 --http 127.0.0.1:2", &["127.0.0.1:1", "127.0.0.1:2"]),
        ("--http 127.0.0.1:1 --http 0.0.0.0:1 --http 0.0.0.0:2", &["0.0.0.0:1", "0.0.0.0:2"]),
        ("--http [::]:1 --http 127.0.0.1:1 --http 0.0.0.0:1 --http [::1]:1", &["[::]:1"]),
        ("--http [::ffff:127.0.0.1]:1 --http 127.0.0.1:1", &["127.0.0.1:1"]),
        ("--http [::1%7]:1 --http [::1]:1", &["[::1]:1"]),
        ("--http [fe80::1%7]:1 --http [fe80::1%8]:1", &["[fe80::1%7]:1", "[fe80::1%8]:1"]),
        ("--http 127.0.0.1:0 --http 127.0.0.1:0", &["127.0.0.1:0", "127.0.0.1:0"]),
        ("--http 0.0.0.0:0 --http 127.0.0.1:0", &["0.0.0.0:0", "127.0.0.1:0"]),
    ] {
        let [_, http] = addresses(&format!("-l 10.0.0.1 {words}")).expect("addresses");
        assert_eq!(http, wanted, "{words}");
    }
}

#[test]
fn no_address_serves_clients_and_http() {
    for (words, refused) in [
        ("-l 10.0.0.1 --http 10.0.0.1:7531", "10.0.0.1:7531"),
        ("-l 0.0.0.0 --http 10.0.0.1:7531", "10.0.0.1:7531"),
        ("-l 10.0.0.1 --http [::]:7531", "[::]:7531"),
        ("-l 10.0.0.1 --http [::ffff:10.0.0.1]:7531", "10.0.0.1:7531"),
        ("-l ::,10.0.0.1 --http [::ffff:0.0.0.0]:7531", "0.0.0.0:7531"),
        ("-p 9531 --http [::1]:9531", "[::1]:9531"),
    ] {
        let error = addresses(words).expect_err(words);
        let why = "for HTTP: clients have that address (-l, -p)";
        assert_eq!(error, format!("Couldn't bind to {refused} {why}"), "{words}");
    }
    for fine in [
        "-l 10.0.0.1 --http 10.0.0.2:7531",
        "-l 0.0.0.0 --http [::1]:7531",
        "-l 10.0.0.1 --http 10.0.0.1:9531",
        "-l 10.0.0.1 -p 0 --http 10.0.0.1:0",
    ] {
        assert!(addresses(fine).is_ok(), "{fine}");
    }
}
