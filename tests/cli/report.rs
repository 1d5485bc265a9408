//! What a finished run says.

use super::program::{DOORS, Folder, end};
use super::server::{listen, plain};
use std::io::{BufRead, BufReader, Read};
use std::time::{Duration, Instant};

/// The JSON report has every field that scripts rely on. Fails if one is renamed.
#[test]
fn json_fields() {
    let url = plain();
    for door in DOORS {
        let folder = Folder::new();
        let words = "--warmup 0s --keys 10 --requests 500 --json report.json --hdr hist.hdr";
        folder.run(&format!("bench {url} --door {door} {words}")).succeeded();
        let report = folder.report();
        assert_eq!(report["schema"], "hedgerow.bench/1");
        assert!(report["machine"].is_object() && report["plan"].is_object());
        let result = &report["result"];
        assert_eq!(result["requests"], 500);
        assert_eq!(result["errors"], 0);
        assert!(result["asked_per_s"].is_null());
        for name in ["p50", "p90", "p99", "p99_9", "p99_99", "max"] {
            assert!(result["latency_us"][name].as_f64().unwrap() > 0.0, "{name}");
            assert!(result["service_us"][name].as_f64().unwrap() > 0.0, "{name}");
        }
        for name in ["throughput_per_s", "cpu_us_per_request"] {
            assert!(result[name].as_f64().unwrap() > 0.0, "{name}");
        }
        assert!(result.get("enters_per_request").is_some());
        assert!(door == "hosted" || result["enters_per_request"].as_f64().unwrap() > 0.0);
        assert!(result["by_command"]["get"].is_object() && result["per_second"].is_array());
        let log = std::fs::read_to_string(folder.path("hist.hdr")).unwrap();
        assert!(log.starts_with("#[") && log.contains("Tag=get,") && log.contains("HISTFAAAA"));
    }
}

/// The table has its rows, says that the loop is closed, and standard error is silent. Fails if a
/// closed loop passes for an open one.
#[test]
fn table_of_a_closed_loop() {
    let url = plain();
    for door in DOORS {
        let words = format!("bench {url} --door {door} --warmup 0s --keys 10 --requests 500");
        let ended = Folder::new().run(&words);
        ended.succeeded();
        for part in ["closed loop", "throughput", "p99.99", "errors        none", "CPU  ", "500"] {
            assert!(ended.out.contains(part), "{part}: {}", ended.out);
        }
        assert_eq!(ended.err, "");
    }
}

/// Without a URL the embedded server is used, and the program says so. Fails if the load silently
/// goes somewhere else.
#[test]
fn embedded_server() {
    for door in DOORS {
        let folder = Folder::new();
        let mix = "get:4,set:2,incr:1,hget:1,hset:1,exists:1,del:1,ping:1";
        let words = format!("bench --door {door} --warmup 0s --keys 10 --requests 500 --mix {mix}");
        let ended = folder.run(&format!("{words} --json report.json"));
        ended.succeeded();
        assert!(ended.err.contains("in-process server"), "{}", ended.err);
        assert_eq!(ended.err.lines().count(), 1);
        assert_eq!(folder.report()["result"]["errors"], 0);
    }
}

/// Ctrl-C ends a run with the figures so far and success. Fails if it kills the program.
#[test]
fn interrupt_gives_the_figures() {
    let url = plain();
    for door in DOORS {
        let folder = Folder::new();
        let words = "--no-load --warmup 0s --duration 1h --mix ping --json report.json";
        let mut child = folder.start(&format!("bench {url} --door {door} {words} --hdr /dev/null"));
        // The line is printed when the first replies are counted.
        let mut err = BufReader::new(child.stderr.take().unwrap());
        wait_until_busy(child.id());
        let id = rustix::process::Pid::from_raw(child.id() as i32).unwrap();
        rustix::process::kill_process(id, rustix::process::Signal::INT).unwrap();
        let ended = end(child);
        let mut rest = String::new();
        err.read_to_string(&mut rest).unwrap();
        assert!(err.buffer().is_empty() && err.fill_buf().unwrap().is_empty());
        assert_eq!(ended.code, Some(0), "{rest}");
        assert!(ended.out.contains("interrupted"), "{}", ended.out);
        let result = &folder.report()["result"];
        assert_eq!(result["interrupted"], true);
        assert!(result["requests"].as_u64().unwrap() > 0);
    }
}

/// Ctrl-C ends the wait for a server that does not answer. Fails if the connect goes on to its limit.
#[test]
fn interrupt_while_connecting() {
    for door in DOORS {
        let (came, here) = std::sync::mpsc::channel();
        let url = listen(move |mut stream| {
            let _ = came.send(());
            while stream.read(&mut [0; 64]).is_ok_and(|read| read > 0) {}
        });
        let folder = Folder::new();
        let child = folder.start(&format!("bench {url} --door {door} --duration 1h"));
        here.recv_timeout(Duration::from_secs(30)).unwrap();
        let began = Instant::now();
        let id = rustix::process::Pid::from_raw(child.id() as i32).unwrap();
        rustix::process::kill_process(id, rustix::process::Signal::INT).unwrap();
        let ended = end(child);
        assert!(began.elapsed() < Duration::from_secs(4), "{:?}", began.elapsed());
        assert_eq!(ended.code, Some(0), "{ended:?}");
        assert!(ended.err.contains("interrupted before"), "{}", ended.err);
    }
}

/// Waits until a process has used some CPU time, which a program that only starts does not.
fn wait_until_busy(id: u32) {
    for _ in 0..3000 {
        let stat = std::fs::read_to_string(format!("/proc/{id}/stat")).unwrap();
        let ticks: u64 = stat.rsplit(' ').nth(52 - 14).unwrap().parse().unwrap();
        if ticks > 20 {
            return;
        }
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    panic!("the program does nothing");
}

/// `doctor` prints the machine and succeeds. Fails if it needs a server.
#[test]
fn doctor() {
    let ended = Folder::new().run("doctor");
    ended.succeeded();
    assert!(ended.out.contains("kernel") || ended.out.contains("Linux"), "{}", ended.out);
}
