//! The page that a comparison writes: whole, self-contained, with everything that it is to show.

mod command;

use command::{done, refused};
use std::{fs, process::Command};

#[test]
fn comparison_writes_its_report() {
    let directory = tempfile::tempdir().expect("a directory");
    let arguments = "compare --iters 4 --batch 2 --width 2 --threads 1 --methods fp32,fp16,dynamic,gs,gs:paper --seeds 0,1 \
                     --eval-every 2 --out results";
    let output = Command::new(env!("CARGO_BIN_EXE_gradscale"))
        .args(arguments.split_whitespace())
        .current_dir(directory.path())
        .output()
        .expect("the program starts");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let results = directory.path().join("results");
    let html = fs::read_to_string(results.join("report.html")).expect("a report");
    let json: serde_json::Value =
        serde_json::from_slice(&fs::read(results.join("results.json")).expect("results")).expect("JSON");

    assert!(html.len() < 3 << 20, "{} bytes", html.len());
    self_contained(&html);
    let drawings = balanced(&html);
    assert!(drawings > 50, "{drawings} drawings");
    for id in [
        "verdict",
        "before-after",
        "summary",
        "curves",
        "scales",
        "underflow",
        "histogram",
        "range",
        "samples",
        "arguments",
    ] {
        assert_eq!(html.matches(&format!("<section id=\"{id}\"")).count(), 1, "{id}");
    }
    let runs = json["runs"].as_array().expect("runs");
    let sites = runs[3]["sites"].as_array().expect("sites");
    assert!(sites.len() > 10);
    for site in sites {
        let name = site["name"].as_str().expect("a name");
        assert!(html.matches(name).count() > 5, "{name}");
        let counts = site["histogram"]["counts"].as_array().expect("gradient scaling sees histograms");
        assert!(counts.iter().any(|count| *count != 0), "{name}");
    }
    // Four images, with labels and a prediction of each method.
    assert_eq!(html.matches("data:image/png;base64,").count(), 4 * (2 + 5));
    for text in [
        "gs:paper",
        "dynamic",
        "Pedestrian",
        "4 steps of 2 images",
        "eval-every",
        json["commit"].as_str().expect("one"),
    ] {
        assert!(html.contains(text), "{text}");
    }
    // The table's numbers are those of the file.
    let table = fs::read_to_string(results.join("table.md")).expect("a table");
    let row = table.lines().find(|line| line.starts_with("| gs |")).expect("a row");
    for number in row.split('|').map(str::trim).filter(|cell| cell.contains('±')) {
        assert!(html.contains(&format!("<td>{number}</td>")), "{number}");
    }
}

/// A report from a trace, which has neither loss nor data; one of PyTorch has other names and the same rows.
#[test]
fn a_trace_has_a_page() {
    let directory = tempfile::tempdir().expect("a directory");
    let directory = directory.path();
    done(directory, &["train", "--iters", "6", "--batch", "2", "--width", "2", "--threads", "1", "--trace", "t.jsonl"]);
    let trace = fs::read_to_string(directory.join("t.jsonl")).expect("a trace");
    assert_eq!(done(directory, &["report", "t.jsonl"]).trim(), "t.html");
    let html = fs::read_to_string(directory.join("t.html")).expect("a page");
    self_contained(&html);
    assert!(balanced(&html) > 20);
    for id in ["verdict", "before-after", "scales", "underflow", "histogram", "range", "events", "arguments"] {
        assert_eq!(html.matches(&format!("<section id=\"{id}\"")).count(), 1, "{id}");
    }
    for id in ["summary", "curves", "samples"] {
        assert!(!html.contains(&format!("<section id=\"{id}\"")), "{id}");
    }
    assert!(html.contains("6 steps at") && html.contains("0 skipped, 0 repeats") && !html.contains("NaN"));

    // One step was skipped and one repeated: the report names the site and the failure.
    let mut lines: Vec<serde_json::Value> =
        trace.lines().map(|line| serde_json::from_str(line).expect("a line of JSON")).collect();
    let name = lines[2]["sites"][1]["name"].as_str().expect("a name").to_owned();
    lines[2]["skipped"] = true.into();
    not_a_number(&mut lines[2]["sites"][1]);
    let mut attempt = lines[4].clone();
    attempt["repeated"] = true.into();
    not_a_number(&mut attempt["sites"][0]);
    lines.insert(4, attempt);
    let text: String = lines.iter().map(|line| format!("{line}\n")).collect();
    fs::write(directory.join("u.jsonl"), text).expect("written");
    done(directory, &["report", "u.jsonl", "--out", "page.html"]);
    let html = fs::read_to_string(directory.join("page.html")).expect("a page");
    assert!(html.contains("5 steps at") && html.contains("1 skipped, 1 repeats"));
    for said in [format!("skipped: {name} received NaN"), "repeated: cross_entropy/cast received NaN".to_owned()] {
        assert!(html.contains(&said), "{said}");
    }

    assert!(refused(directory, &["report", "none.jsonl"]).contains("none.jsonl"));
    assert!(refused(directory, &["report", "page.html"]).contains("page.html: line 1"));
    assert!(refused(directory, &["report", "u.jsonl", "--out", "u.jsonl"]).contains("the trace itself"));
    assert_eq!(fs::read_to_string(directory.join("u.jsonl")).expect("still there").lines().count(), 7);
}

/// A NaN more at a site of a trace.
fn not_a_number(site: &mut serde_json::Value) {
    for word in [0, 6] {
        let count = site["words"][word].as_u64().expect("a count");
        site["words"][word] = (count + 1).into();
    }
}

/// Checks that a page loads nothing from elsewhere and runs no script.
fn self_contained(html: &str) {
    for word in ["http:", "https:", "<script", "<link", "<iframe", "@import", "url(", "href=", " onload="] {
        assert!(!html.contains(word), "{word}");
    }
    assert!(html.split("src=\"").skip(1).all(|rest| rest.starts_with("data:image/png;base64,")), "another source");
}

/// Checks that tags close in reverse order and attributes are quoted. Returns the number of drawings.
fn balanced(html: &str) -> usize {
    let mut open: Vec<&str> = Vec::new();
    let style = html.find("<style>").zip(html.find("</style>")).map(|(from, to)| from + 7..to).expect("a style");
    let (head, rest) = (&html[..style.start], &html[style.end..]);
    let mut drawings = 0;
    for part in head.split('<').skip(1).chain(rest.split('<').skip(1)) {
        let (tag, _) = part.split_once('>').expect("a tag ends");
        assert_eq!(tag.matches('"').count() % 2, 0, "quotes of <{tag}>");
        let name = tag.split([' ', '/']).find(|word| !word.is_empty()).expect("a name");
        if tag.starts_with('/') {
            assert_eq!(open.pop(), Some(name), "</{name}>");
        } else if !tag.ends_with('/') && !["!DOCTYPE", "meta", "img"].contains(&name) {
            open.push(name);
        }
        drawings += usize::from(tag.starts_with("svg "));
    }
    assert!(open.is_empty(), "left open: {open:?}");
    drawings
}
