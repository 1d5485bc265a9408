//! The faults that the in-process server makes on request.

use std::io::ErrorKind;
use std::net::TcpStream;
use std::time::{Duration, Instant};

use hedgerow::testing::{Admission, Close, Cut, Delay, Server};

use crate::raw::Raw;

fn start() -> (Server, Raw) {
    let server = Server::start().expect("start");
    let raw = Raw::connect(&server);
    (server, raw)
}

/// Design section 4, test server. Fails if an injected error runs the command, hits another one, or
/// outlives its number.
#[test]
fn errors_strike_as_often_as_told() {
    let (server, mut raw) = start();
    server.faults().fail("set", "LOADING Redis is loading the dataset in memory", 2);
    for _ in 0..2 {
        raw.says("SET a 1", "-LOADING Redis is loading the dataset in memory\r\n");
        raw.says("GET a", "$-1\r\n");
    }
    raw.says("SET a 1", "+OK\r\n");
    server.faults().fail("*", "ERR no", u64::MAX);
    raw.says("PING", "-ERR no\r\n");
    raw.says("HELLO 3", "-ERR no\r\n");
    server.faults().clear();
    raw.says("PING", "+PONG\r\n");
}

/// Design section 4, test server. Fails if a delay is cut short, or delayed replies of one
/// connection change their order.
#[test]
fn delays_hold_and_keep_the_order() {
    let (server, mut raw) = start();
    let delay = Duration::from_millis(20);
    server.faults().delay(Delay::Constant(delay));
    let sent = Instant::now();
    raw.send("SET a 1\r\nGET a\r\n");
    raw.expect("+OK\r\n$1\r\n1\r\n");
    assert!(sent.elapsed() >= delay);

    server.faults().delay(Delay::Uniform(Duration::ZERO, Duration::from_micros(300)));
    let numbers: Vec<String> = (0..500).map(|number| format!("{number:03}")).collect();
    raw.send(numbers.iter().map(|number| format!("PING {number}\r\n")).collect::<String>());
    raw.expect(numbers.iter().map(|number| format!("$3\r\n{number}\r\n")).collect::<String>());

    // A reply without delay waits for those before it.
    server.faults().delay(Delay::Constant(delay));
    raw.send("PING 1\r\n");
    while server.stats().commands < 503 {
        std::thread::yield_now();
    }
    server.faults().delay(Delay::None);
    raw.send("PING 2\r\n");
    raw.expect("$1\r\n1\r\n$1\r\n2\r\n");
}

/// Design section 4, test server. Fails if another reply than every third is stalled.
#[test]
fn every_nth_reply_stalls() {
    let (server, mut raw) = start();
    let stall = Duration::from_millis(30);
    server.faults().stall_every(3, stall);
    for number in 1..=6 {
        let sent = Instant::now();
        raw.says("PING", "+PONG\r\n");
        if number % 3 == 0 {
            assert!(sent.elapsed() >= stall, "reply {number}");
        }
    }
}

/// Design section 4, test server. Fails if a byte more or less than told is sent before the end, or
/// the second connection is cut as well.
#[test]
fn a_stream_is_cut_at_its_byte() {
    for bytes in [0, 1, 6, 7, 8, 13] {
        let (server, mut raw) = start();
        server.faults().disconnect_at_byte(bytes, Close::End, 1);
        raw.send("PING\r\nPING\r\n");
        let (got, end) = raw.rest();
        let expected = &b"+PONG\r\n+PONG\r\n"[..bytes as usize];
        assert_eq!((got.as_slice(), end), (expected, None));
        Raw::connect(&server).says("PING", "+PONG\r\n");
    }
}

/// Design section 4, test server. Fails if a cut before running changes data, one after running
/// does not, or a reset looks like an end.
#[test]
fn a_command_can_end_its_connection() {
    let (server, mut raw) = start();
    server.faults().disconnect_on("INCR", Cut::BeforeRunning, Close::End, 1);
    raw.send("PING\r\nINCR n\r\nPING\r\n");
    assert_eq!(raw.rest(), (b"+PONG\r\n".to_vec(), None));

    server.faults().disconnect_on("INCR", Cut::AfterRunning, Close::Reset, 1);
    let mut raw = Raw::connect(&server);
    raw.says("GET n", "$-1\r\n");
    raw.send("INCR n\r\n");
    assert_eq!(raw.rest(), (Vec::new(), Some(ErrorKind::ConnectionReset)));
    Raw::connect(&server).says("GET n", "$1\r\n1\r\n");
}

/// Design section 4, test server. Fails if a dropped reply arrives, or its command does not run.
#[test]
fn replies_can_be_dropped() {
    let (server, mut raw) = start();
    server.faults().drop_replies("INCR", 1);
    raw.send("INCR n\r\nGET n\r\n");
    raw.expect("$1\r\n1\r\n");
}

/// Design section 4, test server. Fails if split writes lose, repeat or reorder bytes.
#[test]
fn writes_can_be_split() {
    let (server, mut raw) = start();
    raw.says("SET k abcdefghij", "+OK\r\n");
    for (size, gap_us) in [(1, 0), (1, 200), (3, 50), (7, 0)] {
        server.faults().split_writes(size, Duration::from_micros(gap_us));
        raw.send("GET k\r\nPING\r\n");
        raw.expect("$10\r\nabcdefghij\r\n+PONG\r\n");
    }
}

/// Design section 4, test server. Fails if a paused server answers or accepts, or forgets what
/// arrived while it was paused.
#[test]
fn a_pause_stops_everything_until_resumed() {
    let (server, mut raw) = start();
    raw.says("PING", "+PONG\r\n");
    server.faults().pause();
    raw.send("PING\r\n");
    let mut late = Raw::connect(&server);
    late.send("PING\r\n");
    raw.0.set_read_timeout(Some(Duration::from_millis(30))).expect("timeout");
    let mut byte = [0];
    let read = std::io::Read::read(&mut raw.0, &mut byte).expect_err("paused");
    assert_eq!(read.kind(), ErrorKind::WouldBlock);
    assert_eq!(server.stats().commands, 1);
    server.faults().resume();
    raw.0.set_read_timeout(Some(crate::raw::PATIENCE)).expect("timeout");
    raw.expect("+PONG\r\n");
    late.expect("+PONG\r\n");
}

/// Design section 4, test server. Fails if a refused, closed, reset or ignored connection is
/// treated as another of these.
#[test]
fn new_connections_can_be_turned_away() {
    let (server, mut open) = start();
    let faults = server.faults().clone();
    let address = server.addr().expect("an address");

    open.says("PING", "+PONG\r\n");
    faults.admit(Admission::Refuse);
    let error = TcpStream::connect(address).expect_err("refused");
    assert_eq!(error.kind(), ErrorKind::ConnectionRefused);
    open.says("PING", "+PONG\r\n");

    faults.admit(Admission::CloseAtOnce);
    assert_eq!(Raw::to(address).rest(), (Vec::new(), None));
    faults.admit(Admission::ResetAtOnce);
    let reset = TcpStream::connect(address).map(|stream| Raw(stream).rest());
    match reset {
        Ok(rest) => assert_eq!(rest, (Vec::new(), Some(ErrorKind::ConnectionReset))),
        Err(error) => assert_eq!(error.kind(), ErrorKind::ConnectionReset),
    }
    faults.admit(Admission::Ignore);
    let mut ignored = Raw::to(address);
    ignored.send("PING\r\n");
    faults.admit(Admission::Open);
    ignored.expect("+PONG\r\n");

    faults.disconnect_all(Close::End);
    assert_eq!(open.rest(), (Vec::new(), None));
    assert_eq!(server.stats().open, 0);
}

/// Design section 4, test server. Fails if a port that is taken while connections are refused is given
/// up, or a Unix socket cannot be refused and opened again.
#[test]
fn a_refusing_server_comes_back() {
    let server = Server::start().expect("start");
    let address = server.addr().expect("an address");
    server.faults().admit(Admission::Refuse);
    let squatter = std::net::TcpListener::bind(address).expect("the port is free");
    server.faults().admit(Admission::Open);
    drop(squatter);
    let until = Instant::now() + crate::raw::PATIENCE;
    while TcpStream::connect(address).is_err() {
        assert!(Instant::now() < until, "never back");
    }
    Raw::connect(&server).says("PING", "+PONG\r\n");

    let path = std::env::temp_dir().join(format!("hedgerow-refuse-{}.sock", std::process::id()));
    let server = Server::builder().unix(&path).start().expect("start");
    let connect = || std::os::unix::net::UnixStream::connect(&path);
    server.faults().admit(Admission::Refuse);
    assert_eq!(connect().expect_err("refused").kind(), ErrorKind::ConnectionRefused);
    server.faults().admit(Admission::Open);
    connect().expect("open again");
}

/// Design section 4, test server. Fails if a handle that outlives its server hangs or panics.
#[test]
fn faults_outlive_the_server() {
    let (server, mut raw) = start();
    let faults = server.faults().clone();
    server.stop();
    assert_eq!(raw.rest().0, b"");
    faults.admit(Admission::Refuse);
    faults.disconnect_all(Close::End);
    faults.clear();
}

/// Design section 4, test server. Fails if a spinning server does not see orders, delays or
/// requests.
#[test]
fn a_spinning_server_serves_too() {
    let delay = Delay::Constant(Duration::from_micros(100));
    let server = Server::builder().spin(true).delay(delay).start().expect("start");
    let mut raw = Raw::connect(&server);
    raw.says("PING", "+PONG\r\n");
    server.faults().disconnect_all(Close::Reset);
    assert_eq!(raw.rest().1, Some(ErrorKind::ConnectionReset));
}
