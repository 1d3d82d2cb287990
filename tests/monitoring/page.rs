//! The page at `/`, as far as it needs no browser: tests/browser has the rest.

use crate::support::base64::to_base64;
use crate::support::file;
use crate::support::http::{WithHttp, get};
use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};

/// The hash of the text of the only element `tag`, as a Content-Security-Policy has it.
fn hash_of(page: &str, tag: &str) -> String {
    let (_, rest) = page.split_once(&format!("<{tag}>")).expect(tag);
    let (text, rest) = rest.split_once(&format!("</{tag}>")).expect(tag);
    assert!(!rest.contains(&format!("<{tag}")), "two of {tag}");
    let mut child = Command::new("sha256sum")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("sha256sum, of coreutils");
    child.stdin.take().expect("stdin").write_all(text.as_bytes()).expect("send");
    let output = child.wait_with_output().expect("sha256sum").stdout;
    let digits = String::from_utf8_lossy(&output[..64]).into_owned();
    let byte = |n: usize| u8::from_str_radix(&digits[2 * n..2 * n + 2], 16).expect("digits");
    format!("'sha256-{}'", to_base64(&(0..32).map(byte).collect::<Vec<u8>>()))
}

#[test]
fn page_policy_has_the_hashes_of_the_page_and_forbids_the_rest() {
    let page = file("src/reporting/http/page.html");
    let policy = format!(
        "default-src 'none'; script-src {}; style-src {}; connect-src 'self'; img-src data:; \
         base-uri 'none'; form-action 'none'; frame-ancestors 'none'; \
         require-trusted-types-for 'script'; trusted-types 'none'\n",
        hash_of(&page, "script"),
        hash_of(&page, "style"),
    );
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/reporting/http/page.policy");
    if std::env::var_os("UPDATE").is_some() {
        std::fs::write(&path, &policy).expect("write");
    }
    let kept = std::fs::read_to_string(&path).expect("read");
    assert!(kept == policy, "UPDATE=1 cargo test --test monitoring page_policy");
}

#[test]
fn it_is_one_file_and_only_it_may_run_scripts() {
    let daemon = WithHttp::start(&[]);
    let (head, body) = get(daemon.http, "/");
    assert!(head.contains(file("src/reporting/http/page.policy").trim()), "{head}");
    assert_eq!(body, file("src/reporting/http/page.html"));
    for word in ["https://", "src=", "@import", "innerHTML", "insertAdjacentHTML", "document.write"]
    {
        assert!(!body.contains(word), "{word}");
    }
    let (head, _) = get(daemon.http, "/stats.json");
    assert!(head.contains("Content-Security-Policy: default-src 'none'; frame-ancestors"));
}
