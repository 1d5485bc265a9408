//! Lists, sets, maps and tuples from replies.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap, HashSet, VecDeque},
    hash::{BuildHasher, Hash},
};

use super::{ConvertError, Frame, FromReply, Kept, Kind, Reply};

/// The elements of any aggregate, each converted.
pub(super) fn list<T: FromReply<K>, K: Kept>(reply: Reply<'_, K>) -> Result<Vec<T>, ConvertError> {
    // At most a third of the bytes at hand, whatever the header says.
    let mut list = Vec::with_capacity(reply.frame().elements().size_hint().0);
    each(reply, "an array", |item| {
        list.push(item);
        Ok(())
    })?;
    Ok(list)
}

fn each<T: FromReply<K>, K: Kept>(
    reply: Reply<'_, K>,
    expected: &'static str,
    mut keep: impl FnMut(T) -> Result<(), ConvertError>,
) -> Result<(), ConvertError> {
    let frame = reply.frame();
    if !frame.kind().is_aggregate() {
        return Err(ConvertError::new(expected, &frame));
    }
    for (index, element) in frame.elements().enumerate() {
        let item = T::from_reply(reply.with_frame(element));
        keep(item.map_err(|error| error.in_element(index))?)?;
    }
    Ok(())
}

/// Whether it is a list of two-element lists, as RESP3 sends members with scores.
fn is_nested(frame: &Frame<'_>) -> bool {
    let is_pair = |element: Frame<'_>| element.kind() == Kind::Array && element.count() == 2;
    frame.kind() != Kind::Map
        && frame.elements().next().is_some_and(is_pair)
        && frame.elements().all(is_pair)
}

/// Pairs from a map, a flat list or a list of pairs.
fn each_pair<A: FromReply<K>, B: FromReply<K>, K: Kept>(
    reply: Reply<'_, K>,
    expected: &'static str,
    mut keep: impl FnMut(A, B),
) -> Result<(), ConvertError> {
    let frame = reply.frame();
    if !frame.kind().is_aggregate() {
        return Err(ConvertError::new(expected, &frame));
    }
    if is_nested(&frame) {
        return each(reply, expected, |(left, right)| {
            keep(left, right);
            Ok(())
        });
    }
    let count = frame.count();
    if !count.is_multiple_of(2) {
        return Err(ConvertError::with_came(expected, format!("a list of {count}"), &frame));
    }
    for (index, (left, right)) in frame.pairs().enumerate() {
        let left = A::from_reply(reply.with_frame(left));
        let right = B::from_reply(reply.with_frame(right));
        keep(
            left.map_err(|error| error.in_element(index * 2))?,
            right.map_err(|error| error.in_element(index * 2 + 1))?,
        );
    }
    Ok(())
}

impl<T: FromReply<K>, K: Kept> FromReply<K> for Vec<T> {
    fn from_reply(reply: Reply<'_, K>) -> Result<Self, ConvertError> {
        T::list_from_reply(reply)
    }
}

impl<T: FromReply<K>, K: Kept> FromReply<K> for Box<[T]> {
    fn from_reply(reply: Reply<'_, K>) -> Result<Self, ConvertError> {
        T::list_from_reply(reply).map(Vec::into_boxed_slice)
    }
}

impl<T: FromReply<K>, K: Kept> FromReply<K> for VecDeque<T> {
    fn from_reply(reply: Reply<'_, K>) -> Result<Self, ConvertError> {
        T::list_from_reply(reply).map(VecDeque::from)
    }
}

impl<T: FromReply<K>, K: Kept, const N: usize> FromReply<K> for [T; N] {
    /// Exactly `N` elements.
    fn from_reply(reply: Reply<'_, K>) -> Result<Self, ConvertError> {
        T::list_from_reply(reply)?.try_into().map_err(|list: Vec<T>| {
            let came = format!("a list of {}", list.len());
            ConvertError::with_came(format!("a list of {N}"), came, &reply.frame())
        })
    }
}

impl<T: FromReply<K> + Eq + Hash, S: BuildHasher + Default, K: Kept> FromReply<K>
    for HashSet<T, S>
{
    fn from_reply(reply: Reply<'_, K>) -> Result<Self, ConvertError> {
        let mut set = HashSet::default();
        each(reply, "a set", |item| {
            set.insert(item);
            Ok(())
        })?;
        Ok(set)
    }
}

impl<T: FromReply<K> + Ord, K: Kept> FromReply<K> for BTreeSet<T> {
    fn from_reply(reply: Reply<'_, K>) -> Result<Self, ConvertError> {
        let mut set = BTreeSet::default();
        each(reply, "a set", |item| {
            set.insert(item);
            Ok(())
        })?;
        Ok(set)
    }
}

impl<A, B, S, K> FromReply<K> for HashMap<A, B, S>
where
    A: FromReply<K> + Eq + Hash,
    B: FromReply<K>,
    S: BuildHasher + Default,
    K: Kept,
{
    /// Of repeated keys the last one stays.
    fn from_reply(reply: Reply<'_, K>) -> Result<Self, ConvertError> {
        let mut map = HashMap::default();
        each_pair(reply, "a map", |key, value| drop(map.insert(key, value)))?;
        Ok(map)
    }
}

impl<A: FromReply<K> + Ord, B: FromReply<K>, K: Kept> FromReply<K> for BTreeMap<A, B> {
    /// Of repeated keys the last one stays.
    fn from_reply(reply: Reply<'_, K>) -> Result<Self, ConvertError> {
        let mut map = BTreeMap::default();
        each_pair(reply, "a map", |key, value| drop(map.insert(key, value)))?;
        Ok(map)
    }
}

/// The next element of a tuple, converted.
fn next<'a, T: FromReply<K>, K: Kept>(
    reply: &Reply<'a, K>,
    elements: &mut impl Iterator<Item = (usize, Frame<'a>)>,
) -> Result<T, ConvertError> {
    let Some((index, element)) = elements.next() else {
        return Err(ConvertError::new("another element", &reply.frame()));
    };
    T::from_reply(reply.with_frame(element)).map_err(|error| error.in_element(index))
}

fn check_count(frame: &Frame<'_>, wanted: usize) -> Result<(), ConvertError> {
    if !frame.kind().is_aggregate() {
        return Err(ConvertError::new(format!("a list of {wanted}"), frame));
    }
    let count = frame.count();
    if count != wanted {
        let came = format!("a list of {count}");
        return Err(ConvertError::with_came(format!("a list of {wanted}"), came, frame));
    }
    Ok(())
}

macro_rules! tuple {
    ($count:literal: $($type:ident)* $(; $list:item)?) => {
        impl<$($type: FromReply<Z>,)* Z: Kept> FromReply<Z> for ($($type,)*) {
            /// Exactly as many elements as the tuple has.
            fn from_reply(reply: Reply<'_, Z>) -> Result<Self, ConvertError> {
                check_count(&reply.frame(), $count)?;
                let mut elements = reply.frame().elements().enumerate();
                Ok(($(next::<$type, Z>(&reply, &mut elements)?,)*))
            }

            $($list)?
        }
    };
}

tuple!(1: A);
tuple!(2: A B;
    /// Pairs come as a map, as a flat list or as a list of pairs.
    fn list_from_reply(reply: Reply<'_, Z>) -> Result<Vec<Self>, ConvertError> {
        let mut list = Vec::new();
        each_pair(reply, "a list of pairs", |left, right| list.push((left, right)))?;
        Ok(list)
    }
);
tuple!(3: A B C);
tuple!(4: A B C D);
tuple!(5: A B C D E);
tuple!(6: A B C D E F);
tuple!(7: A B C D E F G);
tuple!(8: A B C D E F G H);
