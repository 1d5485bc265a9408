//! Wrong usage: exit code 2, one line.

use super::program::Folder;

/// Each wrong command line gets one line that names what is wrong. Fails if one is run, panics or
/// ends with another code.
#[test]
fn wrong_usage() {
    let cases = [
        ("", "hedgerow bench"),
        ("dance", "dance"),
        ("bench --frob", "--frob"),
        ("bench --duration", "--duration"),
        ("bench --duration 10", "unit"),
        ("bench --duration 1s --requests 5", "--requests"),
        ("bench --rate 0", "--rate"),
        ("bench --rate fast", "--rate"),
        ("bench --mix flushall", "--mix"),
        ("bench --value-size 1GiB", "--value-size"),
        ("bench --key-dist zipf", "--key-dist"),
        ("bench --cores 9999", "9999"),
        ("bench --rung u9", "possible values: u2, u1, epoll"),
        ("bench --workers 2", "--door hosted"),
        ("bench --keys 100000000", "--load-anyway"),
        ("bench --seed -1", "--seed"),
        ("bench redis://[::1 --duration 1s", "URL"),
        ("bench http://192.0.2.1/", "URL"),
        ("doctor now", "now"),
    ];
    let folder = Folder::new();
    for (words, named) in cases {
        folder.run(words).failed(2, named);
    }
}

/// A URL's password is in no message. Fails if the address is echoed as it was typed.
#[test]
fn url_errors_hide_the_password() {
    let urls = [
        "redis://me:hunter2@[::1",
        "redis://:hunter2@host:port",
        "http://:hunter2@host",
        // Characters that end the part before the host unless they are escaped.
        "redis://me:123?hunter2@host",
        "redis://me:123#hunter2@host",
        "redis://me:123/hunter2@host",
        "redis://123?hunter2=@host",
        "hunter2@host",
        "hunter2:x@host",
        "redis://me:hunter2@host:0",
    ];
    for url in urls {
        let ended = Folder::new().run(&format!("bench {url}"));
        assert_eq!(ended.code, Some(2), "{ended:?}");
        assert!(!ended.err.contains("hunter2"), "{}", ended.err);
    }
}

/// Help and version are answers. Fails if they go to standard error or count as failure.
#[test]
fn help_and_version() {
    for words in ["--help", "bench --help", "probe --help", "replay --help", "--version"] {
        let ended = Folder::new().run(words);
        ended.succeeded();
        assert!(!ended.out.is_empty() && ended.err.is_empty());
    }
}
