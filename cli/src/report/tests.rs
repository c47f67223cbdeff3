//! The page of a made-up result, with names that try to be HTML.

use super::*;
use crate::data::{LoadNotes, Segmentation, Sources, Split};
use serde_json::json;

const HOSTILE: &str = "<script src=\"http://x\">'&";

fn data() -> Segmentation {
    let (images, labels) = (vec![9; 36].into(), vec![1; 12].into());
    let split = Split { count: 2, height: 2, width: 3, images, labels, sources: Sources::Unnamed };
    Segmentation {
        name: HOSTILE.to_owned(),
        classes: vec![HOSTILE.to_owned(), "b".to_owned()],
        colours: vec![[1, 2, 3], [4, 5, 6]],
        values: Vec::new(),
        ignore: Some(255),
        weights: vec![1.0; 2],
        train: split.clone(),
        validation: None,
        test: split,
        notes: LoadNotes::default(),
    }
}

fn record(method: &str, sites: &Value) -> Record {
    let record = json!({
        "method": method, "seed": 0, "iterations": 2, "final_loss": null, "metrics": null, "skipped_steps": 1,
        "seconds": 0.1, "activation_bytes": 0, "failure": HOSTILE, "loss": [1.0, 0.5], "skipped_at": [2],
        "events": [[1, {"said": HOSTILE, "magnitude": 3.4, "decided": -7}], [2, "skipped: of a log of before"]],
        "scores": [], "sites": sites, "samples": [0, 1, 0, 1, 0, 1],
    });
    serde_json::from_value(record).expect("a record")
}

fn site(name: &str, alpha: i32, histogram: &Value) -> Value {
    json!({
        "name": name, "iteration": [1, 2], "alpha": [alpha, alpha], "gamma_measured": [0.5, 0.0],
        "gamma_predicted": [null, 1e-4], "overflows": [0, 3], "subnormal_share": [0.0, 0.0], "amax": [null, -20.0],
        "bound": [null, "overflow"], "worst_at_decision": 0.0, "worst_between": 0.0, "steps_above": 0,
        "bound_by_overflow": 1, "worst": 0.5, "histogram": histogram,
    })
}

fn html(methods: Vec<&str>, runs: &[Record]) -> String {
    let origin = Origin { version: "1", commit: "abc", machine: HOSTILE.to_owned() };
    let (data, arguments) = (data(), json!({"data": HOSTILE, "seeds": [], "list": [1, 2]}));
    let report = Report {
        title: HOSTILE.to_owned(),
        subject: HOSTILE.to_owned(),
        about: "",
        circumstances: HOSTILE.to_owned(),
        notice: None,
        methods,
        runs: &runs.iter().collect::<Vec<_>>(),
        data: Some(&data),
        origin: &origin,
        arguments,
    };
    report.html()
}

#[test]
fn names_stay_names() {
    let histogram = json!({"iteration": 1, "first": -30, "counts": [1, 0, 3]});
    let sites = json!([site(HOSTILE, 4, &histogram), site("net.b/dgrad", -300, &json!(null))]);
    let runs = [record(HOSTILE, &json!([])), record("gs", &sites), record("fp16", &sites)];
    let html = html(vec![HOSTILE, "gs", "fp16"], &runs);
    assert!(!html.contains("<script") && !html.contains("\"http"), "{html}");
    assert!(html.matches("&lt;script src=&quot;http://x&quot;&gt;&#39;&amp;").count() > 10);
    assert!(html.contains("<td>2³</td><td>2⁻⁷</td>"), "largest value and scale of an event");
    assert!(!html.contains("NaN") && !html.contains("inf\""), "no place is NaN");
}

#[test]
fn activations_are_shown_where_one_has_an_exponent() {
    let plain = record("gs", &json!([site("net.a/dgrad", 3, &json!(null))]));
    assert!(!html(vec!["gs"], std::slice::from_ref(&plain)).contains("id=\"activations\""));
    let all = json!([site(HOSTILE, -5, &json!(null)), site("net.b/forward", 0, &json!(null))]);
    let run = Record { activations: serde_json::from_value(all).expect("sites"), ..plain };
    let html = html(vec!["gs"], &[run]);
    assert!(html.contains("<section id=\"activations\""));
    let numbers = ["2⁰", "2⁰", "2⁻²⁰", &text::percent(0.5), "3"].map(|number| format!("<td>{number}</td>")).concat();
    assert!(html.contains(&format!("<th scope=\"row\">net.b</th>{numbers}")), "{html}");
    assert!(html.contains("<td>2⁻⁵</td>") && !html.contains("<script"));
}

#[test]
fn nothing_to_show_is_shown() {
    for runs in [vec![], vec![record("fp32", &json!([]))]] {
        let html = html(vec!["fp32"], &runs);
        for id in [
            "verdict",
            "before-after",
            "summary",
            "curves",
            "scales",
            "underflow",
            "histogram",
            "range",
            "events",
            "samples",
            "arguments",
        ] {
            assert!(html.contains(&format!("<section id=\"{id}\"")), "{id}");
        }
        assert!(!html.contains("NaN"));
    }
}

#[test]
fn ranks_are_shown_where_there_were_several() {
    let alone = record("gs", &json!([]));
    assert!(!html(vec!["gs"], std::slice::from_ref(&alone)).contains("id=\"ranks\""));
    let ranks = json!([
        {"first": 1, "steps": 4, "whole": 2.0, "ranks": 4, "sent": 6_000_000, "received": 4000, "seconds": 0.5, "hidden": 0.3},
        // A log of before has no such number.
        {"first": 5, "steps": 1, "whole": 0.0, "ranks": 2, "sent": 8, "received": 9, "seconds": 0.0},
    ]);
    let run = Record { ranks: serde_json::from_value(ranks).expect("stretches"), ..alone };
    let html = html(vec!["gs"], &[run]);
    let row = "<th scope=\"row\">1–4</th><td>4</td><td>1.5&nbsp;MB</td><td>1.0&nbsp;kB</td><td>125.0&nbsp;ms</td><td>75.0&nbsp;ms</td>\
               <td>10&nbsp;%</td>";
    assert!(html.contains(row), "{html}");
    assert!(html.contains(
        "<th scope=\"row\">5–5</th><td>2</td><td>8&nbsp;B</td><td>9&nbsp;B</td><td>0.0&nbsp;ms</td><td>0.0&nbsp;ms</td><td>0&nbsp;%</td>"
    ));
}
