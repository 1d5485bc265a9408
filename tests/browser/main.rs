//! The probe's page in a real browser: headless Chromium renders it, and a script that is added to a copy
//! of it tells what is there. Two pictures stay in Cargo's folder for tests, for people to look at.

use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

/// Tells what the page holds, in an element of its own.
const QUESTIONS: &str = include_str!("questions.js");

/// What Chromium writes to standard error for a line on a page's console.
const CONSOLE: &str = ":CONSOLE";

/// A folder with a probe's report and page.
struct Probed {
    folder: tempfile::TempDir,
    report: Value,
}

impl Probed {
    /// Probes the embedded deployment, with a check of the advice.
    fn new() -> Probed {
        let folder = tempfile::tempdir().expect("a folder");
        let words = "probe --duration 6s --blocks 2 --warmup 1s --rate 1000 --clients 4 --seed 3 --json \
                     report.json --html page.html";
        let mut program = Command::new(env!("CARGO_BIN_EXE_hedgerow"));
        program.args(words.split_whitespace()).current_dir(folder.path()).stdin(Stdio::null());
        let ended = program.output().expect("the program starts");
        assert!(ended.status.success(), "{ended:?}");
        let report = std::fs::read(folder.path().join("report.json")).expect("a report");
        let report = serde_json::from_slice(&report).expect("it is JSON");
        Probed { folder, report }
    }

    fn page(&self) -> PathBuf {
        self.folder.path().join("page.html")
    }

    /// A copy of the page that asks itself the questions.
    fn asking(&self) -> PathBuf {
        let page = std::fs::read_to_string(self.page()).expect("a page");
        let asks = format!("<script>{QUESTIONS}</script></body>");
        let asking = page.replace("</body>", &asks);
        assert_ne!(page, asking);
        let path = self.folder.path().join("asking.html");
        std::fs::write(&path, asking).expect("room");
        path
    }

    fn browse(&self, page: &Path, how: &[&str]) -> Output {
        browse(self.folder.path(), page, how)
    }
}

/// Shows a page in a browser without a window, and without a network.
fn browse(profile: &Path, page: &Path, how: &[&str]) -> Output {
    let mut browser = Command::new("chromium");
    browser.args([
        "--headless",
        "--no-sandbox",
        "--disable-gpu",
        "--hide-scrollbars",
        "--no-first-run",
    ]);
    browser.args([
        "--enable-logging=stderr",
        "--proxy-server=127.0.0.1:1",
        "--virtual-time-budget=3000",
    ]);
    browser.arg(format!("--user-data-dir={}", profile.join("profile").display()));
    browser.args(how).arg(format!("file://{}", page.display())).stdin(Stdio::null());
    let ended = browser.output().expect("chromium is installed (apt-get install chromium)");
    assert!(ended.status.success(), "{}", String::from_utf8_lossy(&ended.stderr));
    ended
}

/// The lines on the page's console.
fn console(ended: &Output) -> Vec<String> {
    let log = String::from_utf8_lossy(&ended.stderr);
    log.lines().filter(|line| line.contains(CONSOLE)).map(str::to_string).collect()
}

/// The answers of a page that asks itself, which must have nothing on its console.
fn answers(probed: &Probed, how: &[&str]) -> Value {
    let ended = probed.browse(&probed.asking(), &[how, &["--dump-dom"]].concat());
    assert_eq!(console(&ended), Vec::<String>::new());
    let dom = String::from_utf8(ended.stdout).expect("a page is text");
    let found =
        dom.split_once("<pre id=\"found\">").and_then(|(_, rest)| rest.split_once("</pre>"));
    let (found, _) = found.unwrap_or_else(|| panic!("no answers in {dom}"));
    serde_json::from_str(&found.replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&"))
        .expect("answers are JSON")
}

fn number(value: &Value) -> f64 {
    value.as_f64().unwrap_or_else(|| panic!("not a number: {value}"))
}

/// The figures in the tables and above them are those of the report.
fn check_figures(report: &Value, found: &Value) {
    let passes = report["passes"].as_array().expect("passes");
    assert_eq!(found["rows"].as_array().map(Vec::len), Some(passes.len()));
    for (pass, row) in passes.iter().zip(found["rows"].as_array().expect("rows")) {
        assert_eq!(row["name"], pass["name"]);
        assert_eq!(number(&row["reads"]), number(&pass["reads"]));
        for (shown, field) in [("p50", "p50"), ("p99", "p99"), ("p99.9", "p99_9"), ("max", "max")] {
            assert_eq!(number(&row[shown]), number(&pass["latency_us"][field]), "{shown} of {row}");
        }
    }
    let advice = report["advice"]["text"].as_str().expect("a text");
    let shown = found["advice"].as_str().expect("a text");
    assert!(shown.to_lowercase().contains(&advice.to_lowercase()), "{shown}");
    let facts = found["facts"].as_str().expect("a text");
    let seed = report["configuration"]["seed"].to_string();
    let kernel = report["machine"]["kernel"].as_str().expect("a kernel");
    assert!(facts.contains(&seed) && facts.contains(kernel), "{facts}");
}

/// The plots hold what the report does.
fn check_plots(report: &Value, found: &Value) {
    let passes = report["passes"].as_array().expect("passes").len();
    assert_eq!(
        (&found["percentile_curves"], &found["cdf_curves"]),
        (&passes.into(), &passes.into())
    );
    let by_node = report["heat"]["by_node"].as_array().expect("cells");
    let cells: Vec<usize> =
        by_node.iter().map(|cells| cells.as_array().map_or(0, Vec::len)).collect();
    assert_eq!(found["heat_cells"], cells.iter().sum::<usize>());
    assert_eq!(found["heat_maps"], cells.iter().filter(|count| **count > 0).count());
    let grid = report["what_if"]["grid"].as_array().map_or(0, Vec::len);
    assert_eq!(found["surface_cells"], grid);
    let advised = usize::from(report["advice"]["kind"] == "hedge");
    assert_eq!(found["advised_cells"], advised);
    assert_eq!(found["curves_inside"], true, "a curve leaves its plot");
}

/// Fails if the page has an error on its console, lacks a curve, cell or figure of the report, runs
/// out of a narrow window, shows nothing under the pointer, or has one look in light and dark.
#[test]
fn page_shows_the_report() {
    let probed = Probed::new();
    let wide = answers(&probed, &["--window-size=1180,1400"]);
    check_figures(&probed.report, &wide);
    check_plots(&probed.report, &wide);
    let names =
        probed.report["passes"].as_array().expect("passes").iter().map(|pass| &pass["name"]);
    for name in names {
        let name = name.as_str().expect("a name");
        assert!(
            wide["readout"].as_str().expect("a text").contains(name),
            "{name}: {}",
            wide["readout"]
        );
    }
    assert_eq!(wide["hidden_first"], true, "before the pointer came");
    assert_eq!(wide["overflows"], false);
    assert_eq!(answers(&probed, &["--window-size=520,900"])["overflows"], false);
    let dark = answers(&probed, &["--blink-settings=preferredColorScheme=0"]);
    assert_eq!((&wide["is_dark"], &dark["is_dark"]), (&false.into(), &true.into()));
    assert_ne!(wide["paper"], dark["paper"]);
}

/// A page that complains is noticed. Fails if errors on a console are passed over.
#[test]
fn errors_on_a_console_are_noticed() {
    let folder = tempfile::tempdir().expect("a folder");
    let page = folder.path().join("page.html");
    std::fs::write(&page, "<!doctype html><script>nothing.here()</script>").expect("room");
    let ended = browse(folder.path(), &page, &["--dump-dom"]);
    assert_eq!(console(&ended).len(), 1, "{}", String::from_utf8_lossy(&ended.stderr));
}

/// Pictures of the page are more than an empty sheet. Fails if it cannot be drawn.
#[test]
fn page_is_drawn() {
    let probed = Probed::new();
    for (name, scheme) in [("light", 1), ("dark", 0)] {
        let picture = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("probe-{name}.png"));
        let to = format!("--screenshot={}", picture.display());
        let scheme = format!("--blink-settings=preferredColorScheme={scheme}");
        probed.browse(&probed.page(), &["--window-size=1180,3300", &scheme, &to]);
        let bytes = std::fs::metadata(&picture).expect("a picture").len();
        assert!(bytes > 50_000, "{name}: {bytes} bytes");
    }
}
