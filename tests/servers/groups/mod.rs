//! Every typed command of the six data groups, against a real server, through any door.

mod hashes;
mod keys;
mod lists;
mod sets;
mod sorted_sets;
mod strings;

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::time::Duration;

use hedgerow::command::Command;
use hedgerow::command::server::Flush;
use hedgerow::command::table::{Group, Spec};
use hedgerow::prelude::*;
use hedgerow::resp::{FromReply, Value};
use hedgerow::{Error, ErrorKind, Fate};

use crate::server::Flavor;

/// Commands of the data groups that have no typed method (tests/offline/command.rs says why).
const WITHOUT_METHOD: [&str; 5] = ["MIGRATE", "OBJECT", "OBJECT HELP", "WAIT", "WAITAOF"];

/// Time that a command may wait.
const MOMENT: Duration = Duration::from_millis(10);

/// A door that writes down which commands went through it, and knows what the server lacks.
pub(crate) struct Ground<D> {
    door: D,
    flavor: Flavor,
    missing: BTreeSet<&'static str>,
    said: RefCell<BTreeSet<&'static str>>,
}

impl<D: Door> Door for Ground<D> {
    type Kept = D::Kept;
    type Request<R: FromReply<D::Kept>> = D::Request<R>;

    fn send<R: FromReply<D::Kept>>(&self, command: Command<R>) -> D::Request<R> {
        self.said.borrow_mut().extend(command.name());
        self.door.send(command)
    }
}

/// The commands of the six data groups.
fn data_commands() -> Vec<&'static str> {
    let is_data = |group| {
        use Group::{Generic, Hash, List, Set, SortedSet, String};
        matches!(group, String | Generic | Hash | List | Set | SortedSet)
    };
    let specs = Spec::all().filter(|spec| is_data(spec.group()));
    specs.map(Spec::name).filter(|name| !WITHOUT_METHOD.contains(name)).collect()
}

/// The data commands that a server of this flavor lacks.
fn expected_missing(flavor: Flavor) -> BTreeSet<&'static str> {
    const FIELD_EXPIRY: [&str; 9] = [
        "HEXPIRE",
        "HEXPIREAT",
        "HEXPIRETIME",
        "HPERSIST",
        "HPEXPIRE",
        "HPEXPIREAT",
        "HPEXPIRETIME",
        "HPTTL",
        "HTTL",
    ];
    let newest = ["DELIFEQ", "HGETDEL", "HGETEX", "HSETEX", "MSETEX"];
    match flavor {
        Flavor::Valkey91 => BTreeSet::new(),
        Flavor::Valkey90 => BTreeSet::from(["HGETDEL", "MSETEX"]),
        Flavor::Redis82 => BTreeSet::from(["DELIFEQ", "MSETEX"]),
        Flavor::Redis70 => FIELD_EXPIRY.into_iter().chain(newest).collect(),
    }
}

impl<D: Door> Ground<D> {
    /// Asks the server (COMMAND INFO) which of the data commands it does not have.
    async fn survey(door: D, flavor: Flavor) -> Result<Ground<D>, Error> {
        let names = data_commands();
        let asked: Vec<String> = names.iter().map(|name| name.replace(' ', "|")).collect();
        let answers: Vec<Option<Value>> =
            door.command("COMMAND").arg("INFO").args(&asked).send().await?;
        assert_eq!(answers.len(), names.len());
        let lacks = names.into_iter().zip(answers).filter(|(_, answer)| answer.is_none());
        let missing = lacks.map(|(name, _)| name).collect();
        Ok(Ground { door, flavor, missing, said: RefCell::default() })
    }

    /// Whether the server has a command.
    fn has(&self, name: &str) -> bool {
        !self.missing.contains(name)
    }

    /// The reply to an option that only these flavors have; from the others it must be an error.
    async fn only_of<R: FromReply<D::Kept>>(
        &self,
        flavors: &[Flavor],
        request: D::Request<R>,
    ) -> Result<Option<R>, Error> {
        let answer = request.await;
        if flavors.contains(&self.flavor) {
            return answer.map(Some);
        }
        let error = answer.err().expect("a flavor without the option refuses it");
        assert_eq!((error.kind(), error.code()), (ErrorKind::Server, Some("ERR")), "{error}");
        Ok(None)
    }

    /// Commands that wait are refused before any byte is written: they would hold up the others on
    /// their connection.
    async fn refuses<R: FromReply<D::Kept>>(&self, request: D::Request<R>) {
        let error = request.await.err().expect("a command that waits is refused");
        assert_eq!((error.kind(), error.fate()), (ErrorKind::Refused, Fate::NotSent), "{error}");
    }

    async fn empty(&self) -> Result<(), Error> {
        self.flushall(Flush::Sync).await
    }
}

/// Round trips of every command of the six groups. The client must be allowed administration.
pub(crate) async fn all(door: impl Door, flavor: Flavor) -> Result<(), Error> {
    let ground = Ground::survey(door, flavor).await?;
    assert_eq!(ground.missing, expected_missing(flavor), "what {flavor:?} lacks");
    ground.empty().await?;
    strings::strings(&ground).await?;
    strings::conditions(&ground).await?;
    strings::together(&ground).await?;
    ground.empty().await?;
    keys::lives(&ground).await?;
    keys::names(&ground).await?;
    keys::objects(&ground).await?;
    keys::scans_and_sorts(&ground).await?;
    ground.empty().await?;
    hashes::fields(&ground).await?;
    hashes::expiry(&ground).await?;
    ground.empty().await?;
    lists::ends(&ground).await?;
    lists::inside(&ground).await?;
    lists::waits(&ground).await;
    ground.empty().await?;
    sets::members(&ground).await?;
    sets::joins(&ground).await?;
    ground.empty().await?;
    sorted_sets::members(&ground).await?;
    sorted_sets::ranges(&ground).await?;
    sorted_sets::removals(&ground).await?;
    sorted_sets::joins(&ground).await?;
    sorted_sets::pops(&ground).await?;
    sorted_sets::waits(&ground).await;
    ground.empty().await?;
    let said = ground.said.borrow();
    let unsaid = |name: &&str| !said.contains(name) && ground.has(name);
    let unsaid: Vec<_> = data_commands().into_iter().filter(unsaid).collect();
    assert_eq!(unsaid, [""; 0], "commands that no round trip says");
    Ok(())
}

/// Text for a comparison with owned text.
fn some(text: &str) -> Option<String> {
    Some(text.to_owned())
}

/// A list of owned texts.
fn texts<const N: usize>(texts: [&str; N]) -> Vec<String> {
    texts.map(str::to_owned).to_vec()
}

/// Owned texts with numbers.
fn scored<const N: usize>(pairs: [(&str, f64); N]) -> Vec<(String, f64)> {
    pairs.map(|(member, score)| (member.to_owned(), score)).to_vec()
}

/// The same list in order, for replies that come in none.
fn sorted(mut list: Vec<String>) -> Vec<String> {
    list.sort();
    list
}
