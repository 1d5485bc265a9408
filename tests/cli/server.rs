//! A scripted server on a free port: greets, and answers each command as the script says.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Answers to one connection's commands: the command's words and the time since the first command
/// that is not part of the greeting; gives the time to wait and the reply's bytes.
type Script = dyn Fn(&[Vec<u8>], Duration) -> (Duration, Vec<u8>) + Send + Sync;

/// Starts a server; gives its URL. It ends with the test's process.
pub(crate) fn scripted(
    script: impl Fn(&[Vec<u8>], Duration) -> (Duration, Vec<u8>) + Send + Sync + 'static,
) -> String {
    let script: Arc<Script> = Arc::new(script);
    listen(move |stream| serve(stream, &script))
}

/// As [`scripted`], for connections that `admit` lets in; the others are closed at once.
pub(crate) fn scripted_while(
    admit: impl Fn() -> bool + Send + Sync + 'static,
    script: impl Fn(&[Vec<u8>], Duration) -> (Duration, Vec<u8>) + Send + Sync + 'static,
) -> String {
    let script: Arc<Script> = Arc::new(script);
    listen(move |stream| {
        if admit() {
            serve(stream, &script);
        }
    })
}

/// Starts a listener whose connections `each` handles, one thread for each; gives its URL.
pub(crate) fn listen(each: impl Fn(TcpStream) + Send + Sync + 'static) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("redis://{}", listener.local_addr().unwrap());
    let each = Arc::new(each);
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let each = each.clone();
            std::thread::spawn(move || each(stream));
        }
    });
    url
}

/// A server that answers at once, as an empty one would.
pub(crate) fn plain() -> String {
    scripted(|words, _| (Duration::ZERO, answer(words)))
}

/// The reply of a well-behaved server.
pub(crate) fn answer(words: &[Vec<u8>]) -> Vec<u8> {
    match name(words).as_str() {
        "GET" | "HGET" => b"$5\r\nvalue\r\n".to_vec(),
        "INCR" | "HSET" | "DEL" | "EXISTS" => b":1\r\n".to_vec(),
        "PING" => b"+PONG\r\n".to_vec(),
        _ => b"+OK\r\n".to_vec(),
    }
}

/// The command's name in capitals.
pub(crate) fn name(words: &[Vec<u8>]) -> String {
    String::from_utf8_lossy(&words[0]).to_uppercase()
}

/// The greeting of a server that speaks RESP3.
const HELLO: &[u8] = b"%4\r\n$6\r\nserver\r\n$5\r\nredis\r\n$7\r\nversion\r\n$5\r\n7.2.0\r\n\
    $5\r\nproto\r\n:3\r\n$4\r\nrole\r\n$6\r\nmaster\r\n";

fn serve(stream: TcpStream, script: &Arc<Script>) {
    stream.set_nodelay(true).unwrap();
    let mut out = stream.try_clone().unwrap();
    let mut input = BufReader::new(stream);
    let mut began = None;
    while let Some(words) = read(&mut input) {
        let greeting = matches!(name(&words).as_str(), "HELLO" | "AUTH" | "SELECT" | "CLIENT");
        if greeting {
            let hello = name(&words) == "HELLO";
            let (_, special) = script(&words, Duration::ZERO);
            let plain = special == b"+OK\r\n";
            let reply = if hello && plain { HELLO.to_vec() } else { special };
            if out.write_all(&reply).is_err() {
                return;
            }
            continue;
        }
        let since = began.get_or_insert_with(Instant::now).elapsed();
        let (wait, reply) = script(&words, since);
        if !wait.is_zero() {
            std::thread::sleep(wait);
        }
        if out.write_all(&reply).is_err() {
            return;
        }
    }
}

/// One command; `None` at the end of the connection.
fn read(input: &mut impl BufRead) -> Option<Vec<Vec<u8>>> {
    let count = number(input)?;
    (0..count)
        .map(|_| {
            let mut word = vec![0; number(input)? + 2];
            input.read_exact(&mut word).ok()?;
            word.truncate(word.len() - 2);
            Some(word)
        })
        .collect()
}

/// The number of a `*` or `$` line.
fn number(input: &mut impl BufRead) -> Option<usize> {
    let mut line = String::new();
    input.read_line(&mut line).ok().filter(|read| *read > 0)?;
    line.trim_end().get(1..)?.parse().ok()
}

/// Reads what a client says until its request's empty line, for servers of other protocols.
pub(crate) fn drain(stream: &mut TcpStream) {
    let mut some = [0; 64];
    let _ = stream.read(&mut some);
}
