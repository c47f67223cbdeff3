//! Replay of recorded rows: the rule that wrote a trace has the same exponents in a replay, and other rules have their
//! own.

#![allow(clippy::cast_possible_truncation, reason = "numbers of a trace are small and known")]

use gradscale::{
    Cpu, Input, Method, Observation, Parameters, Trainer, forward_sites,
    gradscale_core::{
        gradient_rules::branch_paper,
        model::terms::Terms,
        scaled::Scaled,
        solve::{Operand, Paper},
        stats::{Convention, Detail},
    },
    models::ResNet,
    nn::{LayerNorm, Linear, Module},
    optim::Sgd,
};
use gradscale_cli::trace::{Writer, overflowed_activation, row};
use serde_json::Value;
use std::{collections::BTreeMap, fs, path::Path, process::Command};

fn gradscale(directory: &Path, arguments: &[&str]) -> (Option<i32>, String, String) {
    let output = Command::new(env!("CARGO_BIN_EXE_gradscale")).args(arguments).current_dir(directory).output();
    let output = output.expect("the program starts");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (output.status.code(), text(&output.stdout), text(&output.stderr))
}

fn lines(path: &Path) -> Vec<Value> {
    let text = fs::read_to_string(path).expect("a file");
    text.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect()
}

/// A training with a trace, and the same trace replayed.
fn both(directory: &Path, method: &str, replayed: &str) -> (Vec<Value>, Vec<Value>) {
    let small = ["train", "--batch", "2", "--width", "2", "--iters", "30", "--threads", "1"];
    let (trace, out) =
        (format!("{}.trace", method.replace([':', ','], "-")), format!("{}.jsonl", replayed.replace([':', ','], "-")));
    if !directory.join(&trace).exists() {
        let (code, _, error) = gradscale(directory, &[&small[..], &["--method", method, "--trace", &trace]].concat());
        assert_eq!(code, Some(0), "{error}");
    }
    let (code, table, error) = gradscale(directory, &["replay", &trace, "--method", replayed, "--out", &out]);
    assert_eq!(code, Some(0), "{error}");
    assert!(table.contains("cross_entropy/cast"), "{table}");
    (lines(&directory.join(trace)), lines(&directory.join(out)))
}

/// Returns true if a line is a failed attempt that was repeated.
fn repeated(line: &Value) -> bool {
    line["repeated"].as_bool().unwrap_or(false)
}

/// Checks that the replay has every step, site and exponent of the trace.
fn same(method: &str, recorded: &[Value], replayed: &[Value]) {
    assert_eq!(recorded.len(), replayed.len());
    for (was, is) in recorded.iter().zip(replayed) {
        assert_eq!(was["iteration"], is["iteration"]);
        assert_eq!(was["skipped"], is["skipped"], "{method}, step {}", was["iteration"]);
        assert_eq!(repeated(was), repeated(is), "{method}, step {}", was["iteration"]);
        let (was, is) = (was["sites"].as_array().expect("sites"), is["sites"].as_array().expect("sites"));
        assert_eq!(was.len(), is.len());
        for (was, is) in was.iter().zip(is) {
            let (was, is) = ([&was["name"], &was["exponent"], &was["next"]], [&is["name"], &is["alpha"], &is["next"]]);
            assert_eq!(was, is, "{method}");
        }
    }
}

#[test]
fn the_rule_of_a_trace_finds_its_exponents_again() {
    let directory = tempfile::tempdir().expect("a directory");
    for method in [
        "gs:exact,interval=3",
        "gs:exact,interval=4,history=1,room=3",
        "dynamic:2",
        "fixed:1024",
        "gs:paper,interval=7",
        "gs:paper-literal,interval=7,gamma=1e-2",
        "gs:authors,interval=1",
    ] {
        let (recorded, replayed) = both(directory.path(), method, method);
        assert_eq!(recorded.len(), 30);
        same(method, &recorded, &replayed);
    }
}

/// A small loss, from step 11 on a smaller one.
fn falling(i: u8) -> f32 {
    2f32.powi(if i > 10 { -20 } else { -14 })
}

/// Batches that do not fit are repeated; the same attempts fail in a replay, and the next ones have the same exponents.
#[test]
fn repeats_are_replayed_too() {
    let directory = tempfile::tempdir().expect("a directory");
    for (method, name) in [("gs", "usual"), ("gs:interval=3", "often")] {
        let (trace, out) = (directory.path().join(name), directory.path().join(format!("{name}.out")));
        // Three batches of seven have 2^20 times the loss of the others.
        residual(&trace, method, |i| 2f32.powi(if i % 7 > 3 { -14 } else { -34 }));
        let (code, table, error) =
            gradscale(directory.path(), &["replay", name, "--method", method, "--out", &format!("{name}.out")]);
        assert_eq!(code, Some(0), "{error}");
        let (recorded, replayed) = (lines(&trace), lines(&out));
        same(method, &recorded, &replayed);
        let repeats = recorded.iter().filter(|line| repeated(line)).count();
        assert!((1..=6).contains(&repeats), "{method}: {repeats} repeats");
        assert!(table.contains(&format!("0 of 20 steps skipped, {repeats} repeats")), "{table}");
    }
}

/// Trains two layers with a trace. Activations of one step overflow. Returns whether each step was skipped, and how often
/// it was repeated.
fn train_with_large_activations(path: &Path, method: &str, steps: u8, large_step: u8) -> Vec<(bool, usize)> {
    let mut parameters = Parameters::seeded(2);
    let [one, two] = ["one", "two"].map(|name| Linear::new(&mut parameters.at(name), 8, 8));
    let rule = method.parse::<Method>().expect("a method");
    let mut trainer =
        Trainer::new(Cpu::new(1).expect("a thread"), parameters, Sgd::new(1e-3), rule).expect("a trainer");
    trainer.observe(Observation::Rows(Detail::Full));
    trainer.observe(Observation::Operands);
    let mut trace = Writer::create(path).expect("a trace").made_by(method);
    let step = |i: u8| {
        let large = if i == large_step { 3e4 } else { 1.0 };
        let x: Vec<f32> = (0..32).map(|k| f32::from((k * 5 + i) % 7) / 7.0 * large).collect();
        let batch = [Input::f32([4, 8], &x), Input::u8([4], &[0, 1, 2, 3])];
        let gradients = trainer.backward(batch, |[x, labels]| two.forward(one.forward(x) * 8.0).cross_entropy(labels));
        let outcome = trainer.step(gradients.expect("gradients")).expect("a step");
        let activation = overflowed_activation(outcome.skipped.as_ref(), forward_sites(&trainer));
        let skipped = outcome.skipped.is_some();
        trace.push_repeated(i.into(), trainer.attempts()).expect("lines");
        trace.push(i.into(), skipped, activation, trainer.sites(), trainer.operands()).expect("a line");
        (skipped, outcome.repeated.len())
    };
    (1..=steps).map(step).collect()
}

/// An attempt that failed because of an activation names it. A replay repeats it too, and its page says why.
#[test]
fn a_trace_names_the_activation_that_overflowed() {
    let directory = tempfile::tempdir().expect("a directory");
    let ends = train_with_large_activations(&directory.path().join("t.jsonl"), "gs:interval=3", 12, 5);
    for (i, end) in (1..).zip(ends) {
        assert_eq!(end, (false, usize::from(i == 5)), "{i}");
    }
    let recorded = lines(&directory.path().join("t.jsonl"));
    let named: Vec<_> = recorded.iter().filter(|line| !line["activation"].is_null()).collect();
    assert_eq!(named.len(), 1);
    let site = named[0]["activation"]["site"].as_str().expect("a name");
    assert!(repeated(named[0]) && site.ends_with("/forward"), "{site}");
    let (code, table, error) =
        gradscale(directory.path(), &["replay", "t.jsonl", "--method", "gs:interval=3", "--out", "out"]);
    assert_eq!(code, Some(0), "{error}");
    assert!(table.contains("0 of 12 steps skipped, 1 repeats"), "{table}");
    same("gs:interval=3", &recorded, &lines(&directory.path().join("out")));
    let page = page_of(directory.path());
    assert!(page.contains(&format!("repeated: {site} overflowed at 2^0; its activations have an exponent now")));
}

/// A step that was skipped because of an activation names it in the trace and on the page, and not the first gradient that
/// was infinite because of it.
#[test]
fn a_trace_names_the_activation_of_a_skipped_step() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("t.jsonl");
    let ends = train_with_large_activations(&path, "gs:interval=3,forward=off", 4, 3);
    assert_eq!(ends, [(false, 0), (false, 0), (true, 0), (false, 0)]);
    let recorded = lines(&path);
    assert!(recorded.iter().zip(ends).all(|(line, (skipped, _))| line["activation"].is_null() != skipped));
    let named = recorded[2]["activation"]["site"].as_str().expect("a name").to_owned();
    assert!(named.ends_with("/forward"), "{named}");
    let (code, table, error) = gradscale(directory.path(), &["replay", "t.jsonl", "--out", "out"]);
    assert_eq!(code, Some(0), "{error}");
    assert!(table.contains("1 of 4 steps skipped, 0 repeats"), "{table}");
    let page = page_of(directory.path());
    assert!(page.contains(&format!("skipped: {named} overflowed at 2^0")), "{page}");
}

/// Returns the report of the trace `t.jsonl`.
fn page_of(directory: &Path) -> String {
    let (code, _, error) = gradscale(directory, &["report", "t.jsonl"]);
    assert_eq!(code, Some(0), "{error}");
    fs::read_to_string(directory.join("t.html")).expect("a page")
}

/// A residual network, whose sums are sites, in training with a trace; `factor` times the loss in each step.
fn residual(path: &Path, method: &str, factor: impl Fn(u8) -> f32) {
    let mut parameters = Parameters::seeded(3);
    let net = ResNet::new(&mut parameters.at("net"), 3, 3, 1, 4);
    let rule: Method = method.parse().expect("a method");
    let device = Cpu::new(1).expect("a thread");
    let mut trainer = Trainer::new(device, parameters, Sgd { momentum: 0.9, ..Sgd::new(0.02 * 2f64.powi(14)) }, rule)
        .expect("a trainer");
    trainer.observe(Observation::Rows(Detail::Full));
    trainer.observe(Observation::Operands);
    let mut trace = Writer::create(path).expect("a trace");
    for i in 1..=20u8 {
        let images: Vec<u8> = (0..4 * 8 * 8 * 3).map(|k: u32| (k * 37 % 251) as u8 ^ i).collect();
        let batch = [Input::u8([4, 8, 8, 3], &images), Input::u8([4], &[0, 1, 2, 3])];
        let factor = factor(i);
        let gradients = trainer.backward(batch, |[x, labels]| net.forward(x).cross_entropy(labels).scale(factor));
        let outcome = trainer.step(gradients.expect("gradients")).expect("a step");
        trace.push_repeated(u64::from(i), trainer.attempts()).expect("lines");
        trace.push(u64::from(i), outcome.skipped.is_some(), None, trainer.sites(), trainer.operands()).expect("a line");
    }
}

#[test]
fn sums_are_replayed_too() {
    let directory = tempfile::tempdir().expect("a directory");
    let at = directory.path();
    for (i, method) in
        ["gs:paper,interval=4", "gs:paper-literal,interval=4", "gs:authors,interval=4"].iter().enumerate()
    {
        let trace = format!("{i}.trace");
        residual(&at.join(&trace), method, falling);
        let (code, _, error) = gradscale(at, &["replay", &trace, "--method", method, "--out", "out"]);
        assert_eq!(code, Some(0), "{error}");
        let recorded = lines(&at.join(&trace));
        let sums = |step: &Value| {
            let sites = step["sites"].as_array().expect("sites").iter();
            sites.filter(|site| site["operands"]["rule"] == "sum").count()
        };
        assert_eq!(sums(&recorded[0]), 3, "one at each block's beginning");
        same(method, &recorded, &lines(&at.join("out")));
    }
}

/// A network that splits, branches and concatenates, in training with a trace. The parts of the split have gradients
/// 2^8 apart.
fn forked(path: &Path, method: &str) {
    let mut parameters = Parameters::seeded(4);
    let mut at = parameters.at("net");
    let first = Linear::new(&mut at.at("first"), 6, 8);
    let norm = LayerNorm::new(&mut at.at("norm"), 8);
    let (left, right) = (Linear::new(&mut at.at("left"), 4, 4), Linear::new(&mut at.at("right"), 4, 4));
    let last = Linear::new(&mut at.at("last"), 8, 3);
    let rule: Method = method.parse().expect("a method");
    let (device, optimizer) = (Cpu::new(1).expect("a thread"), Sgd { momentum: 0.9, ..Sgd::new(0.5) });
    let mut trainer = Trainer::new(device, parameters, optimizer, rule).expect("a trainer");
    trainer.observe(Observation::Rows(Detail::Full));
    trainer.observe(Observation::Operands);
    let mut trace = Writer::create(path).expect("a trace");
    for i in 1..=20u8 {
        let x: Vec<f32> = (0..16 * 6).map(|k: u32| ((k * 37 + u32::from(i)) % 19) as f32 / 8.0 - 1.0).collect();
        let labels: Vec<u8> = (0..16).map(|k| k % 3).collect();
        let batch = [Input::f32([16, 6], &x), Input::u8([16], &labels)];
        let factor = if i > 10 { 2f32.powi(-10) } else { 1.0 };
        let gradients = trainer.backward(batch, |[x, labels]| {
            let x = norm.forward(first.forward(x));
            let parts = x.split(3, &[4, 4]);
            let left = left.forward(parts[0].relu());
            // Small gradients follow, so this part reaches the split with the larger exponent.
            let right = right.forward(parts[1]).scale(2f32.powi(-8));
            let x = left.concat(&[right], 3) + x;
            last.forward(x).cross_entropy(labels).scale(factor)
        });
        let outcome = trainer.step(gradients.expect("gradients")).expect("a step");
        trace.push(u64::from(i), outcome.skipped.is_some(), None, trainer.sites(), trainer.operands()).expect("a line");
    }
}

#[test]
fn splits_are_replayed_too() {
    let directory = tempfile::tempdir().expect("a directory");
    let at = directory.path();
    let mut splits = Vec::new();
    for (i, method) in
        ["gs:paper,interval=4", "gs:paper-literal,interval=4", "gs:authors,interval=4"].iter().enumerate()
    {
        let trace = format!("{i}.trace");
        forked(&at.join(&trace), method);
        let (code, _, error) = gradscale(at, &["replay", &trace, "--method", method, "--out", "out"]);
        assert_eq!(code, Some(0), "{error}");
        let recorded = lines(&at.join(&trace));
        let of = |rule: &str| {
            let sites = recorded[0]["sites"].as_array().expect("sites").iter();
            let named = sites.filter(|site| site["operands"]["rule"] == rule);
            named.map(|site| site["exponent"].as_i64().expect("a number")).collect::<Vec<_>>()
        };
        assert_eq!(
            [of("split").len(), of("sum").len()],
            [1, 1],
            "where parts meet, and before the residual connection"
        );
        splits.push(of("split")[0]);
        same(method, &recorded, &lines(&at.join("out")));
    }
    println!("at the split: 2^{splits:?}");
    assert!(splits[0] > splits[2], "{splits:?}");
}

/// Decisions of the paper's rules on another rule's trace, computed here from its lines only.
#[test]
fn the_papers_rules_on_another_rules_trace() {
    let directory = tempfile::tempdir().expect("a directory");
    let at = directory.path();
    residual(&at.join("exact.trace"), "gs:exact,interval=5", falling);
    let method = "gs:paper,interval=6";
    let (code, _, error) = gradscale(at, &["replay", "exact.trace", "--method", method, "--out", "out"]);
    assert_eq!(code, Some(0), "{error}");
    let (recorded, replayed) = (lines(&at.join("exact.trace")), lines(&at.join("out")));
    let paper = Paper::new(1e-3).expect("a threshold");
    let (mut kinds, mut far): (BTreeMap<String, usize>, i32) = (BTreeMap::new(), 0);
    for (i, (was, is)) in recorded.iter().zip(&replayed).enumerate() {
        let number = |value: &Value| i32::try_from(value.as_i64().expect("a number")).expect("an exponent");
        let sites = |step: &Value, exponent: &str| -> BTreeMap<String, i32> {
            let sites = step["sites"].as_array().expect("sites").iter();
            sites.map(|site| (site["name"].as_str().expect("a name").to_owned(), number(&site[exponent]))).collect()
        };
        let (stored, played) = (sites(was, "exponent"), sites(is, "alpha"));
        if i % 6 != 0 {
            // Between decisions exponents stay.
            assert_eq!(played, sites(&replayed[i - i % 6], "alpha"), "step {}", i + 1);
            continue;
        }
        let incoming = |from: &Value| from["site"].as_str().map_or(0, |site| played[site]);
        for site in was["sites"].as_array().expect("sites") {
            let (name, operands) = (site["name"].as_str().expect("a name"), &site["operands"]);
            let rule = operands["rule"].as_str().expect("a rule");
            *kinds.entry(rule.to_owned()).or_default() += 1;
            let words = |value: &Value| -> Vec<u32> { serde_json::from_value(value.clone()).expect("words") };
            let expected = match rule {
                "product" => {
                    let operand = |value: &Value, k: i32| Operand {
                        rms: value["rms"].as_f64().expect("a number") * 2f64.powi(k),
                        max: value["max"].as_f64().expect("a number") * 2f64.powi(k),
                        convention: Convention::FP16,
                    };
                    let from = &operands["from"];
                    // The trace's exponent of the gradient is that of the site which stored it.
                    assert_eq!(number(&from["exponent"]), stored[from["site"].as_str().expect("a site")]);
                    let moved = incoming(from) - number(&from["exponent"]);
                    far = far.max(moved.abs());
                    let [typical, worst] = [0, 1].map(|i| operands["terms"][i].as_f64().expect("a number"));
                    let (dy, w) = (operand(&operands["dy"], moved), operand(&operands["w"], 0));
                    incoming(from) + paper.product(&dy, &w, Terms { typical, worst }).expect("a decision").k
                }
                "softmax" => {
                    let row = row(&words(&operands["words"]), 0).expect("a row");
                    paper.softmax_cast(&row).expect("a decision").k
                }
                "sum" => {
                    let parts = operands["parts"].as_array().expect("parts").iter().map(|part| {
                        let amax = part["amax"].as_f64().expect("a number") as f32;
                        Scaled::new(amax, number(&part["from"]["exponent"])).rescale(incoming(&part["from"]))
                    });
                    branch_paper(&parts.collect::<Vec<_>>()).expect("an exponent fits")
                }
                // The incoming exponent, or less where it would overflow.
                "cast" => {
                    let row = row(&words(&site["words"]), number(&site["exponent"])).expect("a row");
                    let most = f64::from(row.counts().amax).log2() - f64::from(number(&site["exponent"]));
                    let room = (65520f64.log2() - most).ceil() - 1.0;
                    incoming(&operands["from"]).min(room as i32)
                }
                other => panic!("{other}"),
            };
            assert_eq!(played[name], expected, "step {}, {name}: {rule}", i + 1);
        }
    }
    println!("decisions by rule: {kinds:?}; gradients moved by up to 2^{far}");
    assert_eq!(kinds.len(), 4, "{kinds:?}");
    assert!(far > 2, "{far}");

    // The weights of a first step are those of any other method: there the rule itself is the oracle.
    residual(&at.join("paper.trace"), method, falling);
    let paper = lines(&at.join("paper.trace"));
    let sites = |step: &Value, exponent: &str| -> Vec<i64> {
        let sites = step["sites"].as_array().expect("sites").iter();
        sites.map(|site| site[exponent].as_i64().expect("a number")).collect()
    };
    let (own, other) = (sites(&paper[0], "exponent"), sites(&replayed[0], "alpha"));
    println!("first step: {own:?} in training, {other:?} from the other rule's trace");
    // Operands are rounded differently there, so a decision at a threshold may fall by one, and later sites follow it.
    assert!(own.iter().zip(&other).all(|(own, other)| (own - other).abs() <= 1));
}

#[test]
fn other_rules_are_tried_without_training() {
    let directory = tempfile::tempdir().expect("a directory");
    let (_, none) = both(directory.path(), "gs", "fp16");
    let (_, scaled) = both(directory.path(), "gs", "gs:exact,interval=5");
    let worst = |steps: &[Value]| {
        let sites = steps.iter().flat_map(|step| step["sites"].as_array().expect("sites").clone());
        sites.map(|site| site["gamma"].as_f64().expect("a share")).fold(0.0, f64::max)
    };
    println!("flushed at worst: {:.4} without a scale, {:.6} with one each", worst(&none), worst(&scaled));
    assert!(worst(&none) > 100.0 * worst(&scaled));
    let (_, huge) = both(directory.path(), "gs", "fixed:1237940039285380274899124224");
    assert!(huge.iter().all(|step| step["skipped"] == true), "2^90 overflows everywhere");
    // In f32 nothing is cast.
    let (code, out, _) = gradscale(directory.path(), &["replay", "gs.trace", "--method", "fp32"]);
    assert_eq!(code, Some(0), "{out}");
    assert!(out.starts_with("fp32: nothing is cast to f16, so nothing is flushed in ") && !out.contains('|'), "{out}");
}

#[test]
fn what_is_no_trace_is_said_in_one_line() {
    let directory = tempfile::tempdir().expect("a directory");
    let refused = |arguments: &[&str], named: &str| {
        let (code, _, error) = gradscale(directory.path(), arguments);
        assert_eq!((code, error.lines().count()), (Some(2), 1), "{error}");
        assert!(error.contains(named), "{error}");
    };
    refused(&["replay", "nowhere"], "nowhere");
    for (name, content) in [
        ("empty", ""),
        ("text", "no JSON\nat all\n"),
        (
            "words",
            "{\"iteration\":1,\"skipped\":false,\"sites\":[{\"name\":\"a\",\"exponent\":0,\"next\":0,\"words\":[1,2,3]}]}\n",
        ),
        (
            "long",
            &format!(
                "{{\"iteration\":1,\"skipped\":false,\"sites\":[{{\"name\":\"a\",\"exponent\":0,\"next\":0,\"words\":{:?}}}]}}\n",
                vec![0; 999]
            ),
        ),
    ] {
        fs::write(directory.path().join(name), content).expect("a file");
        refused(&["replay", name], name);
    }
    // A trace from before operands were recorded.
    let line = "{\"iteration\":1,\"skipped\":false,\"sites\":[{\"name\":\"a\",\"exponent\":0,\"next\":0,\"words\":[0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,2]}]}\n";
    fs::write(directory.path().join("old"), line).expect("a file");
    refused(&["replay", "old", "--method", "gs:paper"], "old: a: an older trace without operands; record it again");
    assert_eq!(gradscale(directory.path(), &["replay", "old"]).0, Some(0));
}
