//! From replies to Rust types, with both protocols' shapes.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap, HashSet, VecDeque},
    fmt::Debug,
    time::Duration,
};

use bytes::Bytes;
use hedgerow::resp::{
    ConvertError, Decoder, Frame, FromReply, Kept, Limits, Millis, Protocol, Reply, Seconds, Step,
    Value, encode,
};

use super::memory;

fn convert<T: FromReply>(whole: &str) -> Result<T, ConvertError> {
    let mut decoder = Decoder::new(Protocol::Resp3, Limits::default());
    match decoder.decode(whole.as_bytes()) {
        Ok(Step::Frame(frame)) => Reply::<Bytes>::new(frame, None).convert(),
        other => panic!("no frame: {other:?}"),
    }
}

/// All of `replies` give `wanted`.
#[track_caller]
fn all_give<T: FromReply + PartialEq + Debug>(wanted: T, replies: &[&str]) {
    for reply in replies {
        assert_eq!(convert::<T>(reply).as_ref(), Ok(&wanted), "{reply:?}");
    }
}

#[track_caller]
fn refused<T: FromReply + Debug>(reply: &str, message: &str) {
    let error = convert::<T>(reply).expect_err("it does not suit");
    assert_eq!(error.to_string(), message);
}

/// Fails if a scalar differs between the shapes of RESP2 and RESP3.
#[test]
fn scalars_are_the_same_in_both_protocols() {
    all_give(
        1.5,
        &[",1.5\r\n", "$3\r\n1.5\r\n", "+1.5\r\n", "$?\r\n;2\r\n1.\r\n;1\r\n5\r\n;0\r\n"],
    );
    all_give(2.0f32, &[",2\r\n", ":2\r\n", "$1\r\n2\r\n"]);
    all_give(f64::NEG_INFINITY, &[",-inf\r\n", "$4\r\n-inf\r\n"]);
    all_give(true, &["#t\r\n", ":1\r\n", "$1\r\n1\r\n", "+OK\r\n"]);
    all_give(false, &["#f\r\n", ":0\r\n", "$1\r\n0\r\n", "_\r\n", "$-1\r\n"]);
    all_give(7u8, &[":7\r\n", "$1\r\n7\r\n", "(7\r\n", ",7\r\n", "|0\r\n:7\r\n"]);
    all_give(u128::MAX, &["(340282366920938463463374607431768211455\r\n"]);
    all_give(i64::MIN, &[":-9223372036854775808\r\n", "$20\r\n-9223372036854775808\r\n"]);
    all_give("3".to_owned(), &["+3\r\n", "$1\r\n3\r\n", "=5\r\ntxt:3\r\n", ":3\r\n", ",3\r\n"]);
    all_give(vec![b'a', b'b'], &["$2\r\nab\r\n", "+ab\r\n", "*2\r\n:97\r\n:98\r\n"]);
    all_give(Bytes::from_static(b"ab"), &["$2\r\nab\r\n", "$?\r\n;1\r\na\r\n;1\r\nb\r\n;0\r\n"]);
    all_give((), &["+OK\r\n", ":1\r\n", "_\r\n", "*0\r\n"]);
    all_give(None::<String>, &["_\r\n", "$-1\r\n", "*-1\r\n"]);
    all_give(Some(String::new()), &["$0\r\n\r\n"]);
    all_give(Seconds(Duration::from_secs(90)), &[":90\r\n"]);
    all_give(Millis(Duration::from_millis(90)), &[":90\r\n"]);
}

/// Fails if a collection differs between the shapes of RESP2 and RESP3.
#[test]
fn collections_are_the_same_in_both_protocols() {
    let pairs = vec![("a".to_owned(), 1.5), ("b".to_owned(), 2.0)];
    let shapes = [
        "%2\r\n+a\r\n,1.5\r\n+b\r\n,2\r\n",
        "%?\r\n+a\r\n,1.5\r\n+b\r\n,2\r\n.\r\n",
        "*4\r\n$1\r\na\r\n$3\r\n1.5\r\n$1\r\nb\r\n$1\r\n2\r\n",
        "*2\r\n*2\r\n$1\r\na\r\n,1.5\r\n*2\r\n$1\r\nb\r\n,2\r\n",
    ];
    all_give(pairs.clone(), &shapes);
    all_give(pairs.iter().cloned().collect::<HashMap<_, _>>(), &shapes);
    all_give(
        BTreeMap::from([("a".to_owned(), "1.5".to_owned()), ("b".to_owned(), "2".to_owned())]),
        &shapes,
    );
    let lists = [
        "*2\r\n:1\r\n:2\r\n",
        "~2\r\n:1\r\n:2\r\n",
        ">2\r\n:1\r\n:2\r\n",
        "*?\r\n:1\r\n:2\r\n.\r\n",
    ];
    all_give(vec![1, 2], &lists);
    all_give([1, 2], &lists);
    all_give((1u8, "2".to_owned()), &lists);
    all_give(VecDeque::from([1, 2]), &lists);
    all_give(HashSet::from([1, 2]), &lists);
    all_give(BTreeSet::from([1, 2]), &lists);
    all_give(vec![Some(1), None], &["*2\r\n:1\r\n_\r\n", "*2\r\n:1\r\n$-1\r\n"]);
    all_give(vec![Vec::from("ab")], &["*1\r\n$2\r\nab\r\n"]);
    all_give(Vec::<(String, u8)>::new(), &["*0\r\n", "%0\r\n"]);
    all_give(vec!["a".to_owned(), "1".to_owned()], &["%1\r\n+a\r\n:1\r\n", "*2\r\n+a\r\n:1\r\n"]);
    all_give(
        vec![("1-1".to_owned(), vec![("f".to_owned(), "v".to_owned())])],
        &["*1\r\n*2\r\n$3\r\n1-1\r\n*2\r\n$1\r\nf\r\n$1\r\nv\r\n"],
    );
    let eight = "*8\r\n:1\r\n:2\r\n:3\r\n:4\r\n:5\r\n:6\r\n:7\r\n:8\r\n";
    all_give((1u8, 2u16, 3u32, 4u64, 5i8, 6i16, 7i32, 8i64), &[eight]);
}

/// Fails if an error does not say what was expected and what came, or shows a value.
#[test]
fn errors_name_kinds_and_never_values() {
    refused::<i64>("$6\r\nsecret\r\n", "expected an integer, but a string with other text came");
    refused::<u8>(":256\r\n", "expected an integer that fits u8, but another one came");
    refused::<u64>("$2\r\n-1\r\n", "expected an integer that fits u64, but another one came");
    refused::<i64>(",1.5\r\n", "expected an integer, but a double came");
    refused::<f64>("+secret\r\n", "expected a number, but a string with other text came");
    refused::<bool>(":2\r\n", "expected 0 or 1, but another integer came");
    refused::<String>(
        "_\r\n",
        "expected a string, but a null came; read what may be missing as an `Option`",
    );
    refused::<Vec<String>>(
        "$-1\r\n",
        "expected an array, but a null came; read what may be missing as an `Option`",
    );
    refused::<Vec<i64>>(
        "*2\r\n:1\r\n+x\r\n",
        "expected an integer, but a string with other text came in element 1",
    );
    refused::<Vec<Vec<i64>>>(
        "*2\r\n*0\r\n*1\r\n+x\r\n",
        "expected an integer, but a string with other text came in element 1.0",
    );
    refused::<(i64, i64)>("*3\r\n:1\r\n:2\r\n:3\r\n", "expected a list of 2, but a list of 3 came");
    refused::<[i64; 2]>("*1\r\n:1\r\n", "expected a list of 2, but a list of 1 came");
    refused::<HashMap<String, String>>("*1\r\n:1\r\n", "expected a map, but a list of 1 came");
    refused::<HashMap<String, String>>("+OK\r\n", "expected a map, but a simple string came");
    refused::<Seconds>(":-1\r\n", "expected an integer that fits u64, but another one came");
}

/// case resp/09. Fails if an error inside an aggregate is lost in conversion, or if `Value` takes it
/// for a failure.
#[test]
fn errors_inside_aggregates_are_named() {
    let reply = "*2\r\n:1\r\n-WRONGTYPE wrong kind\r\n";
    let error = convert::<Vec<i64>>(reply).expect_err("an element failed");
    assert_eq!(error.server_error().map(|error| error.code().to_owned()), Some("WRONGTYPE".into()));
    assert!(error.to_string().ends_with("\"WRONGTYPE wrong kind\" came in element 1"), "{error}");
    assert!(convert::<Vec<()>>(reply).is_err());
    assert!(convert::<Vec<Option<i64>>>(reply).is_err());
    let value = convert::<Value>(reply).expect("a value of every reply");
    let Value::Array(items) = value else { panic!("not an array") };
    assert_eq!(
        items[1].server_error().map(|error| error.code().to_owned()),
        Some("WRONGTYPE".into())
    );
}

/// Design section 2. Fails if a large payload is copied that could be shared, or a small one, or one
/// that is a small part of what it would hold, is shared.
#[test]
fn large_payloads_share_and_small_ones_copy() {
    let mut whole = Vec::new();
    encode::array_header(&mut whole, 2);
    encode::bulk(&mut whole, &[b'x'; 4096]);
    encode::bulk(&mut whole, &[b'y'; 16]);
    let block = Bytes::from(whole);
    let lies_in = |part: &Bytes| block.as_ptr_range().contains(&part.as_ptr());
    let reply = Reply::new(Frame::from_validated(&block), Some(&block));
    let [large, small]: [Bytes; 2] = reply.convert().expect("two strings");
    assert!(lies_in(&large) && !lies_in(&small));
    let padded = Bytes::from([&block[..], &[0; 65536]].concat());
    let frame = Frame::from_validated(&padded[..block.len()]);
    let [large, _]: [Bytes; 2] = Reply::new(frame, Some(&padded)).convert().expect("two strings");
    assert!(!padded.as_ptr_range().contains(&large.as_ptr()));
    let foreign = Bytes::from_static(b"foreign");
    assert_eq!(Kept::slice_ref(&block, &foreign), foreign);
}

/// Design section 2. Fails if decoding, walking or reading integers and nulls allocates, or an owned
/// string takes more than one allocation.
#[test]
fn the_short_road_allocates_nothing() {
    let mut decoder = Decoder::new(Protocol::Resp3, Limits::default());
    let mut decode = |whole: &'static [u8], then: &dyn Fn(Reply<'_>)| {
        memory::allocations(|| match decoder.decode(whole) {
            Ok(Step::Frame(frame)) => then(Reply::new(frame, None)),
            other => panic!("no frame: {other:?}"),
        })
    };
    assert_eq!(decode(b":42\r\n", &|reply| assert_eq!(reply.convert(), Ok(42))), 0);
    assert_eq!(decode(b"_\r\n", &|reply| assert_eq!(reply.convert(), Ok(None::<String>))), 0);
    assert_eq!(decode(b"+OK\r\n", &|reply| assert_eq!(reply.convert(), Ok(()))), 0);
    assert_eq!(
        decode(b"*2\r\n$2\r\nab\r\n*1\r\n:1\r\n", &|reply| {
            assert_eq!(
                reply.frame().elements().map(|element| element.len_raw()).sum::<usize>(),
                16
            );
        }),
        0
    );
    assert_eq!(
        decode(b"$2\r\nab\r\n", &|reply| assert!(
            reply.convert::<String>().is_ok_and(|text| text == "ab")
        )),
        1
    );
    assert_eq!(
        decode(b"$2\r\nab\r\n", &|reply| assert!(
            reply.convert::<Vec<u8>>().is_ok_and(|text| text == b"ab")
        )),
        1
    );
}

/// Design section 2. Fails if writing a command into a buffer with room allocates, or a length is
/// counted wrongly.
#[test]
fn commands_are_written_in_place() {
    let mut out = Vec::with_capacity(256);
    let allocations =
        memory::allocations(|| encode::command(&mut out, &[b"SET", b"key", &[0; 100]]));
    assert_eq!(allocations, 0);
    let lens = [3, 3, 100].map(encode::bulk_len).iter().sum::<usize>();
    assert_eq!(out.len(), encode::header_len(3) + lens);
    for number in [0, 1, 9, 10, 99, 100, 12_345, u64::MAX] {
        assert_eq!(encode::Decimal::new(number).as_bytes(), number.to_string().as_bytes());
        assert_eq!(encode::digits(number), number.to_string().len());
    }
    for number in [0.1, -0.0, 1e15, 1e16, 1.7976931348623157e308, -2.2250738585072014e-308, 1e-5] {
        let text = encode::Double::new(number);
        let text = std::str::from_utf8(text.as_bytes()).expect("ASCII");
        assert_eq!(text.parse::<f64>().map(f64::to_bits), Ok(number.to_bits()), "{text}");
    }
}
