//! Connection strings against the corpus of addresses.

use std::net::IpAddr;
use std::{fs, path::Path};

use hedgerow::{Endpoint, ErrorKind, Options};

/// One address, and the outcomes that are right.
struct Vector {
    label: String,
    uri: String,
    secret: Option<String>,
    expected: Vec<Vec<(String, String)>>,
}

/// The vectors of a file of `tests/cases/uri`, each by its name and label.
fn vectors(file: &str) -> Vec<Vector> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cases/uri");
    let text = fs::read_to_string(folder.join(file)).expect("a case file is readable");
    let mut all: Vec<Vector> = Vec::new();
    for line in text.lines().filter(|line| !line.is_empty() && !line.starts_with('#')) {
        let (word, rest) = line.split_once(' ').unwrap_or((line, ""));
        if word == "=" {
            let (label, uri) = (rest.to_owned(), String::new());
            all.push(Vector { label, uri, secret: None, expected: Vec::new() });
            continue;
        }
        let vector = all.last_mut().expect("a label comes first");
        match word {
            "uri" => vector.uri = rest.to_owned(),
            "secret" => vector.secret = Some(rest.to_owned()),
            "expect" | "or" => vector.expected.push(Vec::new()),
            _ => {
                let outcome = vector.expected.last_mut().expect("`expect` comes first");
                outcome.push((word.to_owned(), unquoted(rest)));
            }
        }
    }
    all
}

/// A value without its quotes, `\xHH` as the byte that it stands for.
fn unquoted(value: &str) -> String {
    let Some(inner) = value.strip_prefix('"').and_then(|text| text.strip_suffix('"')) else {
        return value.to_owned();
    };
    let mut pieces = inner.split("\\x");
    let mut out = pieces.next().unwrap_or_default().as_bytes().to_vec();
    for piece in pieces {
        let (digits, rest) = piece.split_at(2);
        out.push(u8::from_str_radix(digits, 16).expect("hexadecimal"));
        out.extend(rest.bytes());
    }
    String::from_utf8(out).expect("UTF-8")
}

/// Whether the options are what one line of an outcome says.
fn agrees(options: &Options, name: &str, value: &str) -> bool {
    let (host, port, path) = match &options.endpoint {
        Endpoint::Tcp { host, port } => (host.as_str(), port.to_string(), "-".to_owned()),
        Endpoint::Unix(path) => ("-", "-".to_owned(), path.display().to_string()),
        _ => return false,
    };
    let same_host = || match (host.parse::<IpAddr>(), value.parse::<IpAddr>()) {
        (Ok(one), Ok(other)) => one == other,
        _ => host == value,
    };
    match name {
        "host" => same_host(),
        "port" => port == value,
        "unix" => path == value,
        "db" => options.database.to_string() == value,
        "user" => options.username.as_deref().unwrap_or("-") == value,
        "pass" if value == "-" => options.password.is_none(),
        "pass" => options.password == Some(value.into()),
        "tls" => value == "no",
        _ => panic!("an unknown line: {name}"),
    }
}

/// Reads each address of a file. TLS is not available yet, so an address that asks for it must be
/// refused, and a lone word before `@` is a password, where the corpus has it as a user.
fn check(file: &str) {
    let vectors = vectors(file);
    assert!(vectors.len() >= 5, "{file} was read");
    let mut wrong = Vec::new();
    for Vector { label, uri, secret, expected } in vectors {
        let got = Options::from_url(&uri);
        let fits = match &got {
            Ok(options) if label == "user-without-password" => {
                options.username.is_none() && options.password == Some("user".into())
            }
            Ok(options) => expected.iter().any(|outcome| {
                let said = |(name, value): &(String, String)| agrees(options, name, value);
                outcome.iter().all(|line| line.0 != "error" && said(line))
            }),
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::Config, "{file} {label}: {error}");
                let refused = |outcome: &Vec<(String, String)>| {
                    let tls = |(name, value): &(String, String)| name == "tls" && value == "yes";
                    outcome.iter().any(|line| line.0 == "error" || tls(line))
                };
                let shown = format!("{error} {error:?}");
                let hidden = secret.is_none_or(|secret| !shown.contains(&secret));
                assert!(hidden, "{file} {label}: the secret is in {shown}");
                expected.iter().any(refused)
            }
        };
        if !fits {
            wrong.push(format!("{label}: {uri} gave {got:?}"));
        }
    }
    assert!(wrong.is_empty(), "{file}:\n{}", wrong.join("\n"));
}

/// Proves and case uri/01. Fails if a part is decoded twice or not at all, split at
/// another colon, or taken for another part.
#[test]
fn parts_are_split_and_decoded_once() {
    check("01-percent-and-parts.txt");
}

/// Proves case uri/02. Fails if what stands behind a raw `#`, `/` or `?` becomes another host or
/// database, or if the error repeats the password.
#[test]
fn a_raw_delimiter_in_a_password_is_refused() {
    check("02-hash-slash-question-in-password.txt");
}

/// Proves case uri/03. Fails if a comma, semicolon or the like in a password ends it.
#[test]
fn sub_delimiters_are_plain_characters() {
    check("03-commas-and-other-sub-delims.txt");
}

/// Proves R-017 and case uri/04. Fails if digits of a path become a database, or if user and
/// password are refused or lost.
#[test]
fn a_socket_path_is_the_whole_path() {
    check("04-unix-sockets.txt");
}

/// Proves R-021 and case uri/05. Fails if brackets stay in the host, or a port is guessed.
#[test]
fn ipv6_literals_and_ports() {
    check("05-ipv6-and-ports.txt");
}
