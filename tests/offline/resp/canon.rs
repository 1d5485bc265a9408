//! The canonical notation of frames and values, as `tests/cases/resp/*.expect` has it.

use hedgerow::resp::{Frame, Kind, Pairs, Value};

enum Task<'a> {
    Text(&'static str),
    Frame(Frame<'a>),
}

/// The notation of a frame, walked in place without recursion.
pub(super) fn frame(frame: Frame<'_>) -> String {
    let mut out = String::new();
    let mut tasks = vec![Task::Frame(frame)];
    while let Some(task) = tasks.pop() {
        let frame = match task {
            Task::Text(text) => {
                out.push_str(text);
                continue;
            }
            Task::Frame(frame) => frame,
        };
        let mut todo = Vec::new();
        for group in frame.attribute_groups() {
            todo.push(Task::Text("attr {"));
            entries(&mut todo, group);
            todo.push(Task::Text("} "));
        }
        match frame.kind() {
            kind if !kind.is_aggregate() => {
                // Attributes come first, so a decorated scalar waits on the stack.
                if todo.is_empty() {
                    out.push_str(&scalar(frame));
                } else {
                    todo.push(Task::Frame(frame.without_attributes()));
                }
            }
            Kind::Map => {
                todo.push(Task::Text("map {"));
                entries(&mut todo, frame.pairs());
                todo.push(Task::Text("}"));
            }
            kind => {
                todo.push(Task::Text(match kind {
                    Kind::Set => "set [",
                    Kind::Push => "push [",
                    _ => "array [",
                }));
                for (index, element) in frame.elements().enumerate() {
                    todo.extend((index > 0).then_some(Task::Text(", ")));
                    todo.push(Task::Frame(element));
                }
                todo.push(Task::Text("]"));
            }
        }
        tasks.extend(todo.into_iter().rev());
    }
    out
}

fn entries<'a>(todo: &mut Vec<Task<'a>>, pairs: Pairs<'a>) {
    for (index, (key, value)) in pairs.enumerate() {
        todo.extend((index > 0).then_some(Task::Text(", ")));
        todo.extend([Task::Frame(key), Task::Text(": "), Task::Frame(value)]);
    }
}

fn scalar(frame: Frame<'_>) -> String {
    let text = quote(&frame.text());
    match frame.kind() {
        Kind::Simple => format!("simple {text}"),
        Kind::Error => format!("err {text}"),
        Kind::BulkError => format!("blob-err {text}"),
        Kind::Bulk => format!("str {text}"),
        Kind::BigNumber => format!("big {text}"),
        Kind::Int => format!("int {}", frame.int().expect("an integer")),
        Kind::Bool => format!("bool {}", frame.bool().expect("a boolean")),
        Kind::Double => format!("double {:?}", frame.double().expect("a double")),
        Kind::Verbatim => verbatim(frame.format().expect("a format"), &text),
        _ => "null".to_owned(),
    }
}

fn verbatim(format: [u8; 3], text: &str) -> String {
    format!("verbatim {} {text}", String::from_utf8_lossy(&format))
}

/// The notation of a value.
pub(super) fn value(of: &Value) -> String {
    match of {
        Value::Simple(text) => format!("simple {}", quote(text)),
        Value::Error(text) => format!("err {}", quote(text)),
        Value::BulkError(text) => format!("blob-err {}", quote(text)),
        Value::Bulk(text) => format!("str {}", quote(text)),
        Value::BigNumber(text) => format!("big {}", quote(text)),
        Value::Int(number) => format!("int {number}"),
        Value::Bool(truth) => format!("bool {truth}"),
        Value::Double(number) => format!("double {number:?}"),
        Value::Verbatim { format, text } => verbatim(*format, &quote(text)),
        Value::Array(items) => format!("array [{}]", list(items)),
        Value::Set(items) => format!("set [{}]", list(items)),
        Value::Push(items) => format!("push [{}]", list(items)),
        Value::Map(pairs) => format!("map {{{}}}", map(pairs)),
        Value::Attributed(inner) => {
            let groups = inner.attributes.iter().map(|group| format!("attr {{{}}} ", map(group)));
            groups.collect::<String>() + &value(&inner.value)
        }
        _ => "null".to_owned(),
    }
}

fn list(items: &[Value]) -> String {
    items.iter().map(value).collect::<Vec<_>>().join(", ")
}

fn map(pairs: &[(Value, Value)]) -> String {
    let pairs = pairs.iter().map(|(key, of)| format!("{}: {}", value(key), value(of)));
    pairs.collect::<Vec<_>>().join(", ")
}

fn quote(bytes: &[u8]) -> String {
    let mut out = String::from("\"");
    for chunk in bytes.utf8_chunks() {
        for c in chunk.valid().chars() {
            match c {
                '\r' => out.push_str("\\r"),
                '\n' => out.push_str("\\n"),
                '\t' => out.push_str("\\t"),
                '\\' | '"' => out.extend(['\\', c]),
                c if c.is_ascii_control() => out.push_str(&format!("\\x{:02x}", c as u32)),
                c => out.push(c),
            }
        }
        for byte in chunk.invalid() {
            out.push_str(&format!("\\x{byte:02x}"));
        }
    }
    out + "\""
}
