//! The program as people call it: results of a small comparison, and errors in one line with exit code 2.

mod command;

use command::without_progress;
use serde_json::Value;
use std::{collections::BTreeSet, fs, path::Path, process::Command};

fn gradscale(directory: &Path, arguments: &[&str]) -> (Option<i32>, String, String) {
    let output = Command::new(env!("CARGO_BIN_EXE_gradscale")).args(arguments).current_dir(directory).output();
    let output = output.expect("the program starts");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (output.status.code(), text(&output.stdout), without_progress(&output.stderr))
}

/// Returns true if standard error has no message except doubts about small trainings.
fn calm(error: &str) -> bool {
    error.lines().all(|line| line.starts_with("gradscale: warning: "))
}

/// A training too small to learn anything.
const SMALL: [&str; 9] = ["compare", "--iters", "3", "--batch", "2", "--width", "2", "--threads", "1"];

#[test]
fn compares_and_writes_results() {
    let directory = tempfile::tempdir().expect("a directory");
    let methods = ["--methods", "fp32,gs:exact,gamma=1e-4,interval=2", "--seeds", "0,1", "--eval-every", "2"];
    let (code, out, error) = gradscale(directory.path(), &[&SMALL[..], &methods].concat());
    assert!(code == Some(0) && calm(&error), "{out}{error}");
    let results = directory.path().join("compare-1");
    let json = fs::read(results.join("results.json")).expect("results");
    let json: Value = serde_json::from_slice(&json).expect("JSON");
    for field in ["version", "commit", "machine"] {
        assert!(json[field].as_str().is_some_and(|text| !text.is_empty()), "{field}");
    }
    assert_eq!(json["arguments"]["methods"], serde_json::json!(["fp32", "gs:exact,gamma=1e-4,interval=2"]));
    let runs = json["runs"].as_array().expect("runs");
    assert_eq!(runs.len(), 4);
    for run in runs {
        assert_eq!(run["iterations"], 3);
        assert_eq!(run["loss"].as_array().map(Vec::len), Some(3));
        assert!(run["final_loss"].as_f64().is_some_and(f64::is_finite));
        assert!(run["metrics"]["miou"].as_f64().is_some_and(|miou| (0.0..=1.0).contains(&miou)));
        assert_eq!(run["scores"].as_array().map(Vec::len), Some(2));
        let sites = run["sites"].as_array().expect("sites");
        assert_eq!(sites.is_empty(), run["method"] == "fp32");
        for site in sites {
            let fields =
                ["alpha", "gamma_measured", "gamma_predicted", "overflows", "subnormal_share", "amax", "bound"];
            for field in fields {
                assert_eq!(site[field].as_array().map(Vec::len), Some(3), "{field} of {}", site["name"]);
            }
        }
    }
    let table = fs::read_to_string(results.join("table.md")).expect("a table");
    assert!(
        table.contains("divided by 2073600 pixels, those of twelve images of 360 × 480") && table.contains("| fp32 |"),
        "{table}"
    );
    // The terminal gets text without Markdown, and the verdict last.
    assert!(!out.contains("```") && !out.contains("|---"), "{out}");
    assert!(out.lines().all(|line| line.chars().count() <= 80), "{out}");
    let words = out.split_whitespace().collect::<Vec<_>>().join(" ");
    let (verdict, page) = (words.rfind("too early").expect("a verdict"), words.rfind("report.html").expect("a page"));
    assert!(words.find("method mIoU %").is_some_and(|table| table < verdict) && verdict < page, "{out}");
    let mut names: Vec<_> =
        fs::read_dir(&results).expect("a directory").map(|one| one.expect("one").file_name()).collect();
    names.sort();
    assert_eq!(names, ["lock", "report.html", "results.json", "table.md"], "no temporary files are left");
    assert_eq!(json["complete"], true);

    // A second comparison creates a new directory; no results are overwritten.
    gradscale(directory.path(), &[&SMALL[..], &["--methods", "fp32"]].concat());
    assert!(directory.path().join("compare-2/results.json").exists());
    let (code, _, error) = gradscale(directory.path(), &[&SMALL[..], &["--out", "compare-1"]].concat());
    assert_eq!(code, Some(2));
    assert!(error.contains("results.json") && error.lines().count() == 1, "{error}");
}

/// Errors still have their exit code if nobody reads the standard error, as in `2>&1 | head -1`.
#[test]
fn a_closed_standard_error_is_no_panic() {
    let directory = tempfile::tempdir().expect("a directory");
    for arguments in [&["train", "--task", "unknown"][..], &["report", "nowhere"]] {
        let (reader, writer) = std::io::pipe().expect("a pipe");
        drop(reader);
        let mut command = Command::new(env!("CARGO_BIN_EXE_gradscale"));
        let status = command.args(arguments).current_dir(directory.path()).stderr(writer).status();
        assert_eq!(status.expect("the program starts").code(), Some(2), "{arguments:?}");
    }
}

/// Without options for task and data, the two towers are compared in addition to the first network, in the same files.
#[test]
fn the_default_shows_two_towers_beside() {
    let directory = tempfile::tempdir().expect("a directory");
    let arguments = ["compare", "--iters", "2", "--width", "2", "--methods", "fp32,gs", "--out", "c"];
    let (code, out, error) = gradscale(directory.path(), &arguments);
    assert_eq!((code, error.as_str()), (Some(0), ""), "{out}");
    let read = |name: &str| fs::read_to_string(directory.path().join("c").join(name)).expect("a file");
    let json: Value = serde_json::from_str(&read("results.json")).expect("JSON");
    assert_eq!(
        (&json["arguments"]["task"], &json["beside"][0]["arguments"]["net"]),
        (&"segnet".into(), &"towers".into())
    );
    assert_eq!((&json["data"]["name"], &json["beside"][0]["data"]["name"]), (&"synthetic".into(), &"synthetic".into()));
    assert_eq!([&json["runs"], &json["beside"][0]["runs"]].map(|runs| runs.as_array().map(Vec::len)), [Some(2); 2]);
    let (table, report) = (read("table.md"), read("report.html"));
    let titles: Vec<&str> = table.lines().filter(|line| line.starts_with("# ")).collect();
    assert!(titles.len() == 2 && titles[1].starts_with("# Two towers"), "{titles:?}");
    assert!(table.contains(", loss divided as in the paper: too early: after 2 steps f32 has mIoU "), "{table}");
    assert!(report.contains("<section id=\"beside\"") && report.matches("<p class=\"headline\">").count() == 2);
    // A comparison of a chosen network has no second network.
    let (code, out, _) = gradscale(directory.path(), &[&arguments[..7], &["--task", "segnet", "--out", "d"]].concat());
    assert!(code == Some(0) && !out.contains("towers"), "{out}");
}

#[test]
fn the_seed_decides_everything() {
    let directory = tempfile::tempdir().expect("a directory");
    let run = |seed: &str, threads: &str, out: &str| {
        let more = ["--seed", seed, "--methods", "gs", "--out", out];
        let mut arguments = [&SMALL[..7], &["--threads", threads], &more].concat();
        arguments[2] = "6";
        assert_eq!(gradscale(directory.path(), &arguments).0, Some(0));
        let json = fs::read(directory.path().join(out).join("results.json")).expect("results");
        let json: Value = serde_json::from_slice(&json).expect("JSON");
        (json["runs"][0]["loss"].clone(), json["runs"][0]["sites"].clone(), json["runs"][0]["metrics"].clone())
    };
    let one = run("5", "1", "a");
    assert_eq!(one, run("5", "3", "b"), "the number of threads must not matter");
    assert_ne!(one.0, run("6", "1", "c").0);
}

#[test]
fn a_file_stands_for_flags() {
    let directory = tempfile::tempdir().expect("a directory");
    let file = directory.path().join("run.toml");
    let text = "iters = 3\nbatch = 2\nwidth = 2\nthreads = 1\nmethods = [\"fp32\", \"fixed:8\"]\nout = \"a\"\n";
    fs::write(&file, text).expect("a file");
    let (code, _, error) = gradscale(directory.path(), &["compare", "--config", "run.toml", "--iters", "2"]);
    assert!(code == Some(0) && calm(&error), "{error}");
    let json = fs::read(directory.path().join("a/results.json")).expect("results");
    let json: Value = serde_json::from_slice(&json).expect("JSON");
    assert_eq!(json["arguments"]["iters"], 2, "the command line wins");
    assert_eq!(json["arguments"]["methods"], serde_json::json!(["fp32", "fixed:8"]));
    for (text, named) in
        [("iters = [[1]]", "iters"), ("itres = 3", "itres"), ("iters 3", "line 1"), ("iters = \"x\"", "x")]
    {
        fs::write(&file, text).expect("a file");
        let (code, _, error) = gradscale(directory.path(), &["compare", "--config=run.toml"]);
        assert_eq!((code, error.lines().count()), (Some(2), 1), "{error}");
        assert!(error.contains(named), "{error}");
    }
    assert_eq!(gradscale(directory.path(), &["train", "--config", "nowhere.toml"]).0, Some(2));
}

/// Messages name the file or option, the values found, and the remedy.
#[test]
fn messages_say_where_and_what() {
    let directory = tempfile::tempdir().expect("a directory");
    fs::write(directory.path().join("data.csv"), "a,b,c\n1,2,3\n").expect("a file");
    let cases: [(&[&str], &str); 5] = [
        (&["train", "--resume", "nowhere"], "nowhere: no such directory"),
        (&["predict", "data.csv", "x.png"], "data.csv: "),
        (&["plan", "--set", "relu"], "--set relu: is not OP=LIST, as in relu=deny"),
        (&["plan", "--set", "relu=never"], "--set relu=never: the lists are allow, deny, inside and infer"),
        (&["inspect", "1.2.3"], "1.2.3: neither a number nor a bit pattern such as 0x3c00 or 0b1111"),
    ];
    for (arguments, said) in cases {
        let (code, out, error) = gradscale(directory.path(), arguments);
        assert_eq!((code, out.as_str(), error.lines().count()), (Some(2), "", 1), "{arguments:?}: {error}");
        assert!(error.starts_with(&format!("gradscale: {said}")), "{arguments:?}: {error}");
    }
}

/// Completions know commands, options, and the values of options that take others too.
#[test]
fn completions_know_the_commands() {
    let directory = tempfile::tempdir().expect("a directory");
    for shell in ["bash", "zsh", "fish"] {
        let (code, out, _) = gradscale(directory.path(), &["completions", shell]);
        for word in ["compare", "pixels", "paper-literal", "megatron", "nesterov=yes", "polynomial"] {
            assert!(code == Some(0) && out.contains(word), "{shell}: {word}");
        }
    }
}

/// The short help fits two screens of 40 lines and 80 columns; the long one has all options, by purpose.
#[test]
fn the_short_help_is_short() {
    let directory = tempfile::tempdir().expect("a directory");
    let commands = [
        "compare", "train", "predict", "export", "replay", "report", "regimes", "window", "propose", "inspect", "plan",
        "devices",
    ];
    for command in commands {
        // Without a terminal the help is wrapped at 100 columns, so its lines are counted as 80 columns would break them.
        let (_, short, _) = gradscale(directory.path(), &[command, "-h"]);
        let lines: usize = short.lines().map(|line| line.chars().count().div_ceil(80).max(1)).sum();
        assert!(lines <= 80, "{command}: {lines} lines\n{short}");
    }
    for command in ["train", "compare"] {
        let (_, long, _) = gradscale(directory.path(), &[command, "--help"]);
        for heading in ["Network:", "Data:", "Training:", "Precision and scaling:", "Device and ranks:", "Results:"] {
            assert!(long.lines().any(|line| line == heading), "{command}: {heading}");
        }
        assert!(long.contains("--keep-f32") && long.contains("--languages"), "{command}");
    }
}

/// Errors about unknown commands, options and values name what resembles them.
#[test]
fn typos_get_a_suggestion() {
    let directory = tempfile::tempdir().expect("a directory");
    let cases: [(&[&str], &str); 4] = [
        (&["tain"], "unrecognized subcommand 'tain'; did you mean train?"),
        (&["train", "--iter", "3"], "unexpected argument '--iter' found; did you mean --iters?"),
        (&["compare", "--methds", "gs"], "unexpected argument '--methds' found; did you mean --methods?"),
        (&["train", "--task", "clasify"], "; did you mean classify?"),
    ];
    for (arguments, said) in cases {
        let (code, _, error) = gradscale(directory.path(), arguments);
        assert_eq!((code, error.lines().count()), (Some(2), 1), "{arguments:?}: {error}");
        assert!(error.trim_end().ends_with(said), "{arguments:?}: {error}");
    }
}

/// Paths of all fields of a value: names joined by dots, `[]` behind lists. Scores are not descended into, and neither
/// are arguments.
fn fields(value: &Value, path: &str, all: &mut BTreeSet<String>) {
    const SCORES: [&str; 3] = ["runs[].metrics", "scores", "validation"];
    match value {
        Value::Object(object) if !SCORES.contains(&path) && path != "arguments" => {
            for (name, value) in object {
                fields(value, &if path.is_empty() { name.clone() } else { format!("{path}.{name}") }, all);
            }
        }
        Value::Array(list) if !list.is_empty() => {
            list.iter().for_each(|value| fields(value, &format!("{path}[]"), all))
        }
        Value::Array(_) => {}
        _ => {
            all.insert(path.to_owned());
        }
    }
    // An object, or a list of them, has a row of its own where the document describes it.
    if !path.is_empty() {
        all.insert(path.to_owned());
    }
}

/// Names in the first column of the table below a heading of docs/cli.md.
fn documented(heading: &str) -> BTreeSet<String> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/cli.md");
    let text = fs::read_to_string(path).expect("the document");
    let lines = text.lines().skip_while(|line| *line != heading).skip(1).take_while(|line| !line.starts_with('#'));
    let first = lines.filter_map(|line| line.strip_prefix("| ")?.split(" | ").next());
    let names = first
        .flat_map(|cell| cell.split(", "))
        .filter_map(|name| Some(name.strip_prefix('`')?.strip_suffix('`')?.to_owned()));
    names.collect()
}

/// Every field of real results is in docs/cli.md, and every field there is in real results.
#[test]
fn fields_of_files_are_documented() {
    let directory = tempfile::tempdir().expect("a directory");
    let at = directory.path();
    let run = |arguments: &[&str]| {
        let (code, out, error) = gradscale(at, &[arguments, &["--threads", "1"]].concat());
        assert_eq!(code, Some(0), "{arguments:?}: {out}{error}");
    };
    // A scale of 2^30 overflows at every step; generators have two losses.
    let methods = "fp32,gs,fixed:2^30";
    // Grades need a network that has learned something.
    let learns = ["compare", "--task", "classify", "--network", "mlp", "--iters", "60", "--eval-every", "30"];
    run(&[&learns[..], &["--methods", methods, "--seeds", "0,1", "--out", "c"], &["--batch", "64", "--width", "8"]]
        .concat());
    let small = |arguments: &[&str]| run(&[arguments, &["--batch", "2", "--width", "2"]].concat());
    small(&["compare", "--task", "generate", "--iters", "2", "--methods", "gs", "--out", "g"]);
    small(&["train", "--iters", "6", "--method", "gs", "--eval-every", "2", "--out", "t"]);
    small(&["train", "--iters", "2", "--method", "fixed:2^30", "--out", "s"]);
    small(&["train", "--task", "generate", "--iters", "2", "--out", "u"]);
    let read = |name: &str| fs::read_to_string(at.join(name)).expect("a file");
    let (mut results, mut log) = (BTreeSet::new(), BTreeSet::new());
    for name in ["c/results.json", "g/results.json"] {
        fields(&serde_json::from_str(&read(name)).expect("JSON"), "", &mut results);
    }
    for name in ["t/log.jsonl", "s/log.jsonl", "u/log.jsonl"] {
        read(name).lines().for_each(|line| fields(&serde_json::from_str(line).expect("JSON"), "", &mut log));
    }
    let scores = documented("### Scores");
    for (heading, found) in [("### results.json of compare", results), ("### log.jsonl of train", log)] {
        let described = documented(heading);
        assert!(described.len() > 20, "{heading}: {described:?}");
        // A field is described by its own row, or by that of an object whose fields another row or table lists.
        let parents = ["losses", "runs[].losses", "repeated[]", "runs[].scores[]", "sites[].histogram"];
        let is_described = |field: &String| {
            described.contains(field)
                || described
                    .iter()
                    .any(|name| name.starts_with(&format!("{field}.")) || name.starts_with(&format!("{field}[]")))
                || parents.iter().any(|parent| field.starts_with(&format!("{parent}.")) && described.contains(*parent))
        };
        let unknown: Vec<&String> = found.iter().filter(|field| !is_described(field)).collect();
        assert!(unknown.is_empty(), "{heading} lacks {unknown:?}");
        let has =
            |name: &String| found.contains(name) || found.iter().any(|field| field.starts_with(&format!("{name}[]")));
        // Ranks need MPI, repeats need gradients that grow by orders of magnitude within a step, and samples without a loss
        // need values that are not read from files.
        let is_rare = |name: &String| ["ranks", "repeated", ".samples"].iter().any(|part| name.contains(part));
        let missing: Vec<&String> = described.iter().filter(|name| !is_rare(name) && !has(name)).collect();
        assert!(missing.is_empty(), "{heading}: {missing:?} are in no file");
    }
    let json: Value = serde_json::from_str(&read("c/results.json")).expect("JSON");
    for score in json["runs"][0]["metrics"].as_object().expect("scores").keys() {
        assert!(scores.contains(score), "{score} is not in the table of scores");
    }
}

/// `--json` prints JSON alone on the standard output.
#[test]
fn json_for_scripts() {
    let directory = tempfile::tempdir().expect("a directory");
    let at = directory.path();
    let small = ["--task", "classify", "--network", "mlp", "--width", "1", "--batch", "500", "--threads", "1"];
    let json = |arguments: &[&str]| -> Vec<Value> {
        let (code, out, error) = gradscale(at, arguments);
        assert_eq!(code, Some(0), "{arguments:?}: {error}");
        out.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect()
    };
    // 2000 digits in batches of 500 are four steps.
    let train = json(&[&["train", "--json", "--epochs", "1.5", "--out", "t"], &small[..]].concat());
    let [train] = &train[..] else { panic!("{train:?}") };
    let checkpoint = train["checkpoint"].as_str().expect("a path");
    assert_eq!((&train["iteration"], &train["complete"]), (&6.into(), &true.into()), "{train}");
    assert!(train["scores"]["top_1"].is_number() && at.join(checkpoint).exists(), "{train}");
    // The loss is the one of terminal and page, the mean of the last 20 steps: here of all.
    let log = fs::read_to_string(at.join("t/log.jsonl")).expect("a log");
    let losses =
        log.lines().map(|line| serde_json::from_str::<Value>(line).expect("JSON")["loss"].as_f64().expect("a loss"));
    let mean = losses.sum::<f64>() / 6.0;
    assert!((train["loss"].as_f64().expect("a loss") - mean).abs() < 1e-6, "{train}: {mean}");
    let compare =
        json(&[&["compare", "--json", "--iters", "2", "--methods", "fp32,gs", "--out", "c"], &small[..]].concat());
    let [compare] = &compare[..] else { panic!("{compare:?}") };
    assert_eq!(compare["parts"][0]["runs"].as_array().map(Vec::len), Some(2), "{compare}");
    let part = compare["parts"][0].as_object().expect("a part");
    assert!(part.keys().eq(["runs", "title", "verdict"]) && part["title"].is_string(), "{compare}");
    assert!(part["runs"][1]["seconds"].is_number() && part["runs"][1]["loss"].is_null(), "{compare}");
    // A complete comparison answers with the same.
    assert_eq!(json(&["compare", "--resume", "c", "--json"]), std::slice::from_ref(compare));
    image::GrayImage::from_pixel(28, 28, image::Luma([9])).save(at.join("a.png")).expect("an image");
    let predicted = json(&["predict", checkpoint, "a.png", "--json"]);
    assert!(
        predicted.len() == 1 && predicted[0]["class"].is_u64() && predicted[0]["input"] == "a.png",
        "{predicted:?}"
    );
}

#[test]
fn errors_are_one_line_with_exit_code_2() {
    let directory = tempfile::tempdir().expect("a directory");
    fs::write(directory.path().join("file"), b"x").expect("a file");
    fs::create_dir(directory.path().join("empty")).expect("a directory");
    fs::create_dir(directory.path().join("cut")).expect("a directory");
    fs::write(directory.path().join("cut/train-images-idx4-ubyte.gz"), [0x1F, 0x8B, 8, 0]).expect("a file");
    let cases: [(&[&str], &str); 20] = [
        (&["--methods", "fp64"], "fp64"),
        (&["--methods", "fixed:100"], "fixed:100"),
        (&["--methods", "fixed"], "fixed"),
        (&["--methods", "gs:exact,gamma=2"], "gamma=2"),
        (&["--methods", "gs:best"], "best"),
        (&["--methods", "gs:paper,room=3"], "room"),
        (&["--methods", "gs,gs"], "twice"),
        (&["--seeds", "0,1,0"], "0 is given twice"),
        (&["--seeds", ""], "not a seed"),
        (&["--seeds", "1,x"], "\"x\" is not a seed"),
        (&["--task", "detection"], "detection"),
        (&["--device", "tpu"], "tpu"),
        (&["--pixels", "-1"], "-1"),
        (&["--width", "0"], "--width"),
        (&["--threads", "1000000"], "--threads"),
        (&["--batch", "500"], "--batch 500: synthetic has only 160 training images; choose at most that"),
        (&["--data", "nowhere"], "nowhere"),
        (&["--data", "empty"], "empty"),
        (&["--data", "cut"], "train-"),
        (&["--out", "file/x"], "file/x"),
    ];
    for (arguments, named) in cases {
        let (code, _, error) = gradscale(directory.path(), &[&["compare", "--iters", "1"], arguments].concat());
        assert_eq!(code, Some(2), "{arguments:?}: {error}");
        assert_eq!(error.lines().count(), 1, "{arguments:?}: {error}");
        assert!(error.contains(named), "{arguments:?}: {error}");
    }
    assert_eq!(fs::read_dir(directory.path()).expect("a directory").count(), 3, "errors leave nothing behind");
}

#[test]
fn weights_come_from_pytorch_models() {
    let directory = tempfile::tempdir().expect("a directory");
    let at = directory.path();
    // [out, in, kh, kw], all different, so that the position of each value shows whether the order was kept.
    let values: Vec<u8> = (0..2 * 3 * 49u16).flat_map(|i| f32::from(i).to_le_bytes()).collect();
    let write = |name: &str, tensor: &str, shape: [usize; 4]| {
        let view = safetensors::tensor::TensorView::new(safetensors::Dtype::F32, shape.to_vec(), &values);
        let bytes = safetensors::serialize([(tensor, view.expect("a tensor"))], None).expect("a file");
        fs::write(at.join(name), bytes).expect("a file");
    };
    write("good", "encoder.conv1.weight", [2, 3, 7, 7]);
    write("wrong", "encoder.conv1.weight", [3, 2, 7, 7]);
    write("foreign", "backbone.weight", [2, 3, 7, 7]);
    fs::write(at.join("noise"), [7; 100]).expect("a file");
    // Before a batch norm, one step hardly changes weights as large as these.
    let train = ["train", "--batch", "2", "--width", "2", "--iters", "1", "--method", "fp32"];
    for (file, named) in [
        ("wrong", "encoder.conv1.weight is 3×2×7×7"),
        ("foreign", "has no weights for this network"),
        ("noise", "noise: not a safetensors file"),
        ("nowhere", "nowhere: No such file"),
    ] {
        let (code, _, error) = gradscale(at, &[&train[..], &["--weights", file]].concat());
        assert_eq!((code, error.lines().count()), (Some(2), 1), "{error}");
        assert!(error.contains(named), "{error}");
    }
    let (code, out, error) = gradscale(at, &[&train[..], &["--weights", "good", "--out", "t"]].concat());
    assert!(code == Some(0) && calm(&error), "{out}{error}");
    assert!(out.starts_with("good: 1 parameters imported; not in the file: "), "{out}");
    let bytes = fs::read(at.join("t/checkpoint-000001.safetensors")).expect("a checkpoint");
    let file = safetensors::SafeTensors::deserialize(&bytes).expect("safetensors");
    let names = file.names();
    let name = names.iter().find(|name| **name == "master.segnet.encoder.conv1.weight").expect("the weight");
    let view = file.tensor(name).expect("the weight");
    let read: Vec<f32> = view.data().chunks_exact(4).map(|b| f32::from_le_bytes([b[0], b[1], b[2], b[3]])).collect();
    for (i, value) in read.iter().enumerate() {
        let [out, pixel, channel] = [i / 147, i / 3 % 49, i % 3];
        let expected = (out * 147 + channel * 49 + pixel) as f32;
        assert!((value - expected).abs() <= 1.0 + 0.01 * expected, "{i}: {value} for {expected}");
    }
}
