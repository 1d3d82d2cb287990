/// A server for examples: grants every lock. Returns its address.
fn serve() -> String {
    use std::io::{BufRead, BufReader, Write};
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("an address").to_string();
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let mut answers = stream.try_clone().expect("a descriptor");
            for line in BufReader::new(stream).lines().map_while(Result::ok) {
                let is_release = line.starts_with("RELEASE");
                let answer: &[u8] = if is_release { b"RELEASED\n" } else { b"LOCKED\n" };
                let _ = answers.write_all(answer);
            }
        }
    });
    address
}
