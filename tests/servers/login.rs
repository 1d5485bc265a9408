//! Who a connection is: passwords, users, database, name, protocol.

use std::time::Duration;

use hedgerow::config::{ProtocolChoice, Secret};
use hedgerow::engine::ConnectionState;
use hedgerow::prelude::*;
use hedgerow::{Error, ErrorKind, Fate, Options};

use crate::placement::{Client, Placement, on_each_placement};
use crate::server::{Flavor, Server};
use crate::typed::every_way;

const PASSWORD: &str = "first-secret";
const APP_PASSWORD: &str = "second-secret";

fn guarded(flavor: Flavor) -> Server {
    let user = format!("app on >{APP_PASSWORD} ~* &* +@all");
    Server::builder(flavor).password(PASSWORD).user(&user).start()
}

/// Options with credentials of the default user (`None`) or another.
fn with_user(mut options: Options, user: Option<&str>, password: &str) -> Options {
    options.username = user.map(str::to_owned);
    options.password = Some(Secret::new(password));
    options
}

/// The value of one `name=value` part of CLIENT INFO or of a line of CLIENT LIST.
fn part<'a>(line: &'a str, name: &str) -> &'a str {
    let parts = line.split_whitespace().filter_map(|part| part.split_once('='));
    parts.filter(|(key, _)| *key == name).map(|(_, value)| value).next().unwrap_or_default()
}

/// Fails if a connection is another user's, in another database or
/// protocol, or without its name, by what each server itself says of it.
async fn connections_are_who_they_should_be<P: Placement>(place: P) {
    for flavor in Flavor::ALL {
        let server = guarded(flavor);
        for (way, options) in every_way(&server) {
            for (user, password) in [(None, PASSWORD), (Some("app"), APP_PASSWORD)] {
                let mut options = with_user(options.clone(), user, password);
                options.database = 3;
                options.client_name = Some("checkout-7".to_owned());
                let what = format!("{flavor:?}, {way}, {user:?}");
                let client =
                    place.connect(&options).await.unwrap_or_else(|e| panic!("{what}: {e}"));
                let me: String = client.command("ACL").arg("WHOAMI").send().await.expect("WHOAMI");
                assert_eq!(me, user.unwrap_or("default"), "{what}");
                let seen = client.client_info().await.expect("CLIENT INFO");
                assert_eq!((part(&seen, "db"), part(&seen, "name")), ("3", "checkout-7"), "{what}");
                let old = options.protocol == ProtocolChoice::Resp2;
                assert_eq!(part(&seen, "resp"), if old { "2" } else { "3" }, "{what}");
                let list = client.client_list().await.expect("CLIENT LIST");
                let id = client.client_id().await.expect("CLIENT ID").to_string();
                let mine = list.lines().find(|line| part(line, "id") == id).expect("is listed");
                assert_eq!(part(mine, "name"), "checkout-7", "{what}");
            }
        }
    }
}

/// Connects where it must fail for good, and checks what the error tells and what it does not.
async fn refused<P: Placement>(
    place: &P,
    server: &Server,
    options: &Options,
    code: &str,
    what: &str,
) {
    let check = |error: &Error| {
        let told = (error.kind(), error.fate(), error.code());
        assert_eq!(told, (ErrorKind::Handshake, Fate::NotSent, Some(code)), "{what}: {error}");
        let texts = format!("{error} {error:?}");
        assert!(!texts.contains("secret"), "{what}: {texts}");
    };
    check(&place.connect(options).await.expect_err(what));
    // The same of a client that connects in the background: its commands fail at once, for good.
    // The server waits until its states are watched.
    server.pause();
    let client = place.create(options).expect("valid options");
    let mut states = client.states();
    server.resume();
    check(&client.ping().await.expect_err(what));
    let mut last = None;
    while let Some(change) = states.next().await {
        last = Some(change.state);
        if change.state == ConnectionState::Failed {
            check(&change.error.expect("a reason"));
            break;
        }
    }
    assert_eq!(last, Some(ConnectionState::Failed), "{what}");
    assert!(!client.is_connected(), "{what}");
    assert_eq!(client.counters().connects, 1, "{what}");
}

/// Fails if a refused login is tried again, names the password, or comes as
/// another error than the server's own.
async fn wrong_credentials_fail_for_good<P: Placement>(place: P) {
    for flavor in Flavor::ALL {
        let server = guarded(flavor);
        for (way, options) in every_way(&server) {
            let what = format!("{flavor:?}, {way}");
            let wrong = with_user(options.clone(), None, "wrong-secret");
            refused(&place, &server, &wrong, "WRONGPASS", &what).await;
            let wrong = with_user(options.clone(), Some("nobody"), APP_PASSWORD);
            refused(&place, &server, &wrong, "WRONGPASS", &what).await;
            let mut beyond = with_user(options.clone(), Some("app"), APP_PASSWORD);
            beyond.database = 99;
            refused(&place, &server, &beyond, "ERR", &what).await;
            if options.protocol == ProtocolChoice::Resp2 {
                // Nothing in this set-up needs a login: the commands find out.
                let client = place.connect(&options).await.expect("up");
                let error = client.get::<Option<String>>("k").await.expect_err("no login");
                assert_eq!((error.kind(), error.code()), (ErrorKind::Server, Some("NOAUTH")));
            } else {
                refused(&place, &server, &options, "NOAUTH", &what).await;
            }
        }
    }
}

/// Fails if Auto does not go on in RESP2 where HELLO is disabled, or if RESP3
/// does not say what is wrong.
async fn without_hello_auto_speaks_resp2<P: Placement>(place: P) {
    for flavor in Flavor::ALL {
        let server = Server::builder(flavor).line("rename-command HELLO \"\"").start();
        for (way, mut options) in every_way(&server) {
            options.database = 1;
            options.client_name = Some("old".to_owned());
            let made = place.connect(&options).await;
            if options.protocol == ProtocolChoice::Resp3 {
                let error = made.expect_err("RESP3 was asked for");
                assert_eq!(error.kind(), ErrorKind::Handshake, "{flavor:?}, {way}");
                let text = error.to_string();
                assert!(text.contains("HELLO") && text.contains("resp2"), "{way}: {text}");
                continue;
            }
            let client = made.unwrap_or_else(|e| panic!("{flavor:?}, {way}: {e}"));
            let seen = client.client_info().await.expect("CLIENT INFO");
            let told = ["resp", "db", "name"].map(|name| part(&seen, name));
            assert_eq!(told, ["2", "1", "old"], "{flavor:?}, {way}");
            client.hset("h", ("f", 1)).await.expect("HSET");
            let whole: Vec<(String, u8)> = client.hgetall("h").await.expect("HGETALL");
            assert_eq!(whole, [("f".to_owned(), 1)]);
        }
    }
}

/// A server without HELLO that wants a login says NOAUTH (Valkey) or that it does not
/// know the command (Redis). Fails if the first leads to RESP2, or the second not to a login there.
async fn without_hello_the_login_follows_its_answer<P: Placement>(place: P) {
    for flavor in Flavor::ALL {
        let server = Server::builder(flavor).password(PASSWORD).line("rename-command HELLO \"\"");
        let server = server.start();
        let says_unknown = flavor.identity().0 == "redis";
        for (way, options) in every_way(&server) {
            let what = format!("{flavor:?}, {way}");
            let options = with_user(options, None, PASSWORD);
            match options.protocol {
                ProtocolChoice::Auto if says_unknown => {}
                ProtocolChoice::Resp2 => {}
                _ => {
                    let code = if says_unknown { "ERR" } else { "NOAUTH" };
                    refused(&place, &server, &options, code, &what).await;
                    continue;
                }
            }
            let client = place.connect(&options).await.unwrap_or_else(|e| panic!("{what}: {e}"));
            let seen = client.client_info().await.expect("CLIENT INFO");
            assert_eq!(part(&seen, "resp"), "2", "{what}");
        }
    }
}

/// Sends PING until it is answered: connections that gave way to this one may not be gone yet.
async fn until_answered<P: Placement>(place: &P, client: &P::Client) {
    while client.ping().await.is_err() {
        place.pause(Duration::from_millis(1)).await;
    }
}

/// Trap 18. Fails if the error of a full server does not name `maxclients`, or if a client that
/// waits in the background does not get in when there is room again.
async fn a_full_server_names_its_limit<P: Placement>(place: P) {
    for flavor in Flavor::ALL {
        let server = Server::builder(flavor).line("maxclients 1").start();
        for (way, options) in every_way(&server) {
            let what = format!("{flavor:?}, {way}");
            let first = place.create(&options).expect("valid options");
            until_answered(&place, &first).await;
            if options.protocol != ProtocolChoice::Resp2 {
                let error = place.connect(&options).await.expect_err("full");
                let told = (error.kind(), error.fate());
                assert_eq!(told, (ErrorKind::Connect, Fate::NotSent), "{what}: {error}");
                assert!(error.to_string().contains("maxclients"), "{what}: {error}");
            }
            let second = place.create(&options).expect("valid options");
            let mut states = second.states();
            let error = loop {
                let change = states.next().await.expect("not closed");
                assert_ne!(change.state, ConnectionState::Failed, "{what}: {:?}", change.error);
                if change.state == ConnectionState::Disconnected {
                    break change.error.expect("a loss has a reason");
                }
            };
            assert!(error.is_transient(), "{what}: {error}");
            assert!(error.to_string().contains("maxclients"), "{what}: {error}");
            drop(first);
            until_answered(&place, &second).await;
        }
    }
}

on_each_placement! {
    connections_are_who_they_should_be,
    wrong_credentials_fail_for_good,
    without_hello_auto_speaks_resp2,
    without_hello_the_login_follows_its_answer,
    a_full_server_names_its_limit,
}
