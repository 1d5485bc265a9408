//! Failures of servers and disks: exit code 1, one line, no hang.

use super::program::{DOORS, Folder, end};
use super::server::{answer, drain, listen, name, plain, scripted, scripted_while};
use std::io::{Read, Write};
use std::net::TcpListener;
use std::time::{Duration, Instant};

/// The shortest measurement.
const SHORT: &str = "--warmup 0s --keys 10 --requests 100";

/// Nobody listens. Fails if the program waits or panics.
#[test]
fn unreachable_server() {
    let address = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    for door in DOORS {
        let began = Instant::now();
        let words = format!("bench redis://{address} --door {door} {SHORT}");
        Folder::new().run(&words).failed(1, &address.to_string());
        assert!(began.elapsed() < Duration::from_secs(15));
    }
}

/// The server speaks HTTP. Fails if its answer is taken for a reply, or waited on.
#[test]
fn http_server() {
    let url = listen(|mut stream| {
        drain(&mut stream);
        let _ = stream.write_all(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n");
    });
    for door in DOORS {
        Folder::new().run(&format!("bench {url} --door {door} {SHORT}")).failed(1, "");
    }
}

/// The server accepts and says nothing. Fails if the program waits longer than it may connect.
#[test]
fn half_open_server() {
    let url = listen(|mut stream| while stream.read(&mut [0; 64]).is_ok_and(|read| read > 0) {});
    for door in DOORS {
        let began = Instant::now();
        Folder::new().run(&format!("bench {url} --door {door} {SHORT}")).failed(1, "");
        assert!(began.elapsed() < Duration::from_secs(20));
    }
}

/// A wrong password. Fails if the load runs without one, or if the password is shown.
#[test]
fn wrong_password() {
    let url = scripted(|words, _| {
        let refused = b"-WRONGPASS invalid username-password pair or user is disabled.\r\n";
        let login = matches!(name(words).as_str(), "AUTH" | "HELLO");
        (Duration::ZERO, if login { refused.to_vec() } else { b"-NOAUTH first\r\n".to_vec() })
    });
    for door in DOORS {
        let url = url.replace("redis://", "redis://me:hunter2@");
        let ended = Folder::new().run(&format!("bench {url} --door {door} {SHORT}"));
        ended.failed(1, "WRONGPASS");
        assert!(!ended.err.contains("hunter2"));
    }
}

/// Every request fails. Fails if a run without a success counts as one.
#[test]
fn every_request_fails() {
    let url = scripted(|words, _| match name(words).as_str() {
        "INCR" => (Duration::ZERO, b"-OOM command not allowed\r\n".to_vec()),
        _ => (Duration::ZERO, answer(words)),
    });
    for door in DOORS {
        let ended = Folder::new().run(&format!("bench {url} --door {door} {SHORT} --mix incr"));
        ended.failed(1, "OOM");
        assert!(ended.out.contains("OOM 100"), "{}", ended.out);
    }
}

/// The keys cannot be loaded. Fails if the load then measures misses.
#[test]
fn loading_fails() {
    let url = scripted(|words, _| match name(words).as_str() {
        "SET" => (Duration::ZERO, b"-READONLY You can't write\r\n".to_vec()),
        _ => (Duration::ZERO, answer(words)),
    });
    for door in DOORS {
        Folder::new().run(&format!("bench {url} --door {door} {SHORT}")).failed(1, "READONLY");
    }
}

/// The server goes away in the run. Fails if the program hangs or panics.
#[test]
fn server_goes_away() {
    let url = listen(|mut stream| {
        let mut some = [0; 4096];
        let _ = stream.read(&mut some);
        let _ = stream.write_all(b"-NOPROTO no\r\n");
        let _ = stream.read(&mut some);
    });
    for door in DOORS {
        let words = "--no-load --mix ping --warmup 0s --duration 1s";
        let ended = Folder::new().run(&format!("bench {url} --door {door} {words}"));
        assert_eq!(ended.code, Some(1), "{ended:?}");
    }
}

/// A full disk for a report. Fails if the error is swallowed, or costs the table.
#[test]
fn full_disk() {
    let url = plain();
    for door in DOORS {
        for flag in ["--json", "--hdr"] {
            let words = format!("bench {url} --door {door} {SHORT} {flag} /dev/full");
            let ended = Folder::new().run(&words);
            ended.failed(1, &format!("{flag} /dev/full"));
            assert!(ended.out.contains("throughput"), "{}", ended.out);
        }
    }
}

/// A report that cannot be opened. Fails if that is found out after the run.
#[test]
fn unwritable_report() {
    let folder = Folder::new();
    // Nobody listens there: a run would fail with another line.
    for flag in ["--json", "--hdr"] {
        let words = format!("bench redis://127.0.0.1:1 {flag} no/such/folder/x");
        folder.run(&words).failed(1, &format!("{flag} no/such/folder/x: cannot be opened"));
    }
}

/// Standard output is full. Fails with a panic if printing unwraps.
#[test]
fn full_standard_output() {
    let full = std::fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
    let child = std::process::Command::new(env!("CARGO_BIN_EXE_hedgerow"))
        .arg("doctor")
        .stdout(full)
        .stderr(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    end(child).failed(1, "standard output");
}

/// The server refuses the second run. Fails if that costs the figures of the first.
#[test]
fn later_run_fails() {
    let accepted = std::sync::atomic::AtomicUsize::new(0);
    let url = scripted_while(
        move || accepted.fetch_add(1, std::sync::atomic::Ordering::Relaxed) == 0,
        |words, _| (Duration::ZERO, answer(words)),
    );
    let folder = Folder::new();
    let words = "--warmup 0s --mix ping --requests 100 --runs 2 --json report.json";
    let ended = folder.run(&format!("bench {url} {words}"));
    assert_eq!(ended.code, Some(1), "{ended:?}");
    assert_eq!(folder.report()["result"]["requests"], 100);
}
