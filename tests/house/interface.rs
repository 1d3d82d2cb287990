//! The public interface of the crate `poolcounter` is `client/interface.txt`: so each change shows
//! in the review. `UPDATE=1 cargo test --test house interface` writes it again.

use crate::source::{is_punct, source_files, tokens_of, top, without_tests};
use proc_macro2::{Delimiter, Group, TokenStream, TokenTree};
use std::collections::BTreeSet;
use std::fs;

/// Modules that `lib.rs` hides, with what they contain: not part of the interface.
const HIDDEN: [&str; 3] = ["cli", "operate", "bin"];

#[test]
fn the_public_interface_is_the_committed_one() {
    let found = interface();
    let path = top().join("client/interface.txt");
    if std::env::var_os("UPDATE").is_some() {
        fs::write(&path, &found).expect("write the interface");
    }
    let committed = fs::read_to_string(&path).expect("client/interface.txt");
    assert!(
        committed == found,
        "the interface is now as follows; UPDATE=1 cargo test --test house interface\n\n{found}"
    );
}

/// A line for each public item, below the name of its file.
fn interface() -> String {
    let source = top().join("client/src");
    let mut text = String::new();
    let mut files = source_files(&source);
    files.sort();
    for file in files {
        let path = file.strip_prefix(&source).expect("a file of the crate");
        let name = path.to_str().expect("text");
        if HIDDEN.iter().any(|hidden| name.starts_with(hidden)) {
            continue;
        }
        let tokens = tokens_of(&fs::read_to_string(&file).expect("the source can be read"));
        let items = public_items(without_tests(tokens));
        if !items.is_empty() {
            text += &format!("{name}\n    {}\n\n", items.join("\n    "));
        }
    }
    text
}

/// The public items of a module, each as a line, sorted.
fn public_items(tokens: TokenStream) -> Vec<String> {
    let items = split(tokens);
    let is_public = |item: &Item| item.head.starts_with("pub ") && !item.head.starts_with("pub (");
    let named: BTreeSet<&str> =
        items.iter().filter(|item| is_public(item)).map(Item::name).collect();
    let mut lines = BTreeSet::new();
    for item in &items {
        let Item { head, body } = item;
        if head.starts_with("impl") && named.contains(item.name()) {
            let members = if head.contains(" for ") { Vec::new() } else { split(body.clone()) };
            let members = members.iter().filter(|member| is_public(member));
            lines.extend(members.map(|member| format!("{head}: {}", member.head)));
            if head.contains(" for ") {
                lines.insert(head.clone());
            }
        } else if is_public(item) && head.contains("struct ") {
            lines.insert(format!("{head} {{ {} }}", public_fields(body.clone())));
        } else if is_public(item) && head.contains("enum ")
            || head.contains("! ")
            || head.ends_with('!')
        {
            // What a macro declares is public: `queries!`, `replies!`.
            lines.insert(format!("{head} {{ {} }}", without_attributes(body.clone())));
        } else if is_public(item) {
            lines.insert(head.clone());
        }
    }
    lines.into_iter().filter(|line| !line.starts_with("macro_rules")).collect()
}

/// An item: what precedes its braces, or all of it if it ends in a semicolon.
struct Item {
    head: String,
    body: TokenStream,
}

impl Item {
    /// The type that is declared or implemented.
    fn name(&self) -> &str {
        let declared = self.head.split_once(" for ").map_or(self.head.as_str(), |(_, name)| name);
        let mut words = declared.split(|c: char| !(c.is_alphanumeric() || c == '_'));
        let is_name =
            |word: &&str| word.starts_with(|c: char| c.is_ascii_uppercase()) && word.len() > 1;
        words.find(is_name).unwrap_or_default()
    }
}

/// The items of a module or an implementation, with what they derive and whether they may grow.
fn split(tokens: TokenStream) -> Vec<Item> {
    let mut items = Vec::new();
    let mut head = Vec::new();
    let mut derived = String::new();
    for token in attributes_marked(tokens) {
        match token {
            Token::Attribute(text) if text.starts_with("derive") || text == "non_exhaustive" => {
                derived += &format!(" [{text}]");
            }
            Token::Attribute(_) => {}
            Token::Other(TokenTree::Group(group))
                if group.delimiter() == Delimiter::Brace && !is_use(&head) =>
            {
                let head = std::mem::take(&mut head).into_iter().collect::<TokenStream>();
                let head = head.to_string() + &std::mem::take(&mut derived);
                items.push(Item { head, body: group.stream() });
            }
            Token::Other(token) if is_punct(&token, ';') => {
                let head = std::mem::take(&mut head).into_iter().collect::<TokenStream>();
                let head = head.to_string() + &std::mem::take(&mut derived);
                items.push(Item { head, body: TokenStream::new() });
            }
            Token::Other(token) => head.push(token),
        }
    }
    items
}

fn is_use(item: &[TokenTree]) -> bool {
    item.iter().any(|token| matches!(token, TokenTree::Ident(word) if word == "use"))
}

enum Token {
    Attribute(String),
    Other(TokenTree),
}

/// Attributes, doc comments among them, as one token each.
fn attributes_marked(tokens: TokenStream) -> Vec<Token> {
    let mut marked = Vec::new();
    let mut tokens = tokens.into_iter().peekable();
    while let Some(token) = tokens.next() {
        if !is_punct(&token, '#') {
            marked.push(Token::Other(token));
            continue;
        }
        tokens.next_if(|token| is_punct(token, '!'));
        if let Some(TokenTree::Group(group)) = tokens.next() {
            marked.push(Token::Attribute(group.stream().to_string()));
        }
    }
    marked
}

/// The tokens without attributes, including those in groups.
fn without_attributes(tokens: TokenStream) -> TokenStream {
    let tokens = attributes_marked(tokens).into_iter();
    let others = tokens.filter_map(|token| match token {
        Token::Attribute(_) => None,
        Token::Other(TokenTree::Group(group)) => {
            let inner = without_attributes(group.stream());
            Some(TokenTree::Group(Group::new(group.delimiter(), inner)))
        }
        Token::Other(token) => Some(token),
    });
    others.collect()
}

/// The public fields of a struct; two dots if it has others.
fn public_fields(tokens: TokenStream) -> String {
    let tokens: Vec<TokenTree> = without_attributes(tokens).into_iter().collect();
    let fields = tokens.split(|token| is_punct(token, ',')).filter(|field| !field.is_empty());
    let fields = fields.map(|field| field.iter().cloned().collect::<TokenStream>().to_string());
    let (public, private): (Vec<String>, Vec<String>) =
        fields.partition(|field| field.starts_with("pub "));
    let rest = if private.is_empty() { None } else { Some("..".to_owned()) };
    public.into_iter().chain(rest).collect::<Vec<_>>().join(", ")
}

#[test]
fn what_is_public_is_found() {
    let source = "//! doc\nuse a::b; /// doc\npub struct Aa { /// doc\n pub a: u8, b: u8 }\n\
        impl Aa { pub fn f(&self) -> u8 { 1 } fn g() {} pub(crate) fn h() {} }\n\
        impl Drop for Aa { fn drop(&mut self) {} }\n#[derive(Debug)] #[non_exhaustive] pub enum Ee { V(u8), W }\n\
        pub(crate) fn private() {} fn also() {} pub const N: u8 = 1;";
    assert_eq!(
        public_items(tokens_of(source)),
        [
            "impl Aa: pub fn f (& self) -> u8",
            "impl Drop for Aa",
            "pub const N : u8 = 1",
            "pub enum Ee [derive (Debug)] [non_exhaustive] { V (u8) , W }",
            "pub struct Aa { pub a : u8, .. }"
        ]
    );
}
