//! Options of learning rate, optimizer, schedule, weight decay and clipping: effects, storage in checkpoints, and
//! errors.

mod checkpoint;

use serde_json::Value;
use std::{fs, path::Path, process::Command};

fn gradscale(directory: &Path, arguments: &str) -> (Option<i32>, String, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_gradscale"));
    let output =
        command.args(arguments.split_whitespace()).current_dir(directory).output().expect("the program starts");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (output.status.code(), text(&output.stdout), text(&output.stderr))
}

fn done(directory: &Path, arguments: &str) -> String {
    let (code, out, error) = gradscale(directory, arguments);
    assert_eq!(code, Some(0), "{arguments}: {error}");
    out
}

fn refused(directory: &Path, arguments: &str, line: &str) {
    let (code, _, error) = gradscale(directory, arguments);
    assert_eq!((code, error.lines().count()), (Some(2), 1), "{arguments}: {error}");
    assert!(error.contains(line), "{arguments}: {error}");
}

/// Returns the losses of a training from its log.
fn losses(directory: &Path) -> Vec<String> {
    let text = fs::read_to_string(directory.join("log.jsonl")).expect("a log");
    let loss = |line: &str| serde_json::from_str::<Value>(line).expect("JSON")["loss"].to_string();
    text.lines().map(loss).collect()
}

/// The settings in a checkpoint.
fn settings(path: &Path) -> Value {
    let plan = checkpoint::content(path).remove("metadata plan").expect("settings");
    let plan: String = serde_json::from_slice(&plan).expect("text");
    serde_json::from_str(&plan).expect("JSON")
}

const MLP: &str = "train --task classify --net mlp --width 2 --batch 8 --threads 1";

/// Default options of each task: given explicitly they lead to the same training.
#[test]
fn defaults_can_be_said() {
    let directory = tempfile::tempdir().expect("a directory");
    let at = directory.path();
    let same = "--optimizer sgd:momentum=0.9 --schedule constant --weight-decay 5e-4";
    for (i, (task, lr)) in [
        ("--task classify --net mlp --batch 4 --pixels 1000", "0.05"),
        ("--task classify --net towers --batch 4", "0.02"),
        ("--batch 2 --pixels 2073600", "0.1"),
    ]
    .into_iter()
    .enumerate()
    {
        let begin = format!("train {task} --width 2 --threads 1 --iters 3");
        done(at, &format!("{begin} --out plain{i}"));
        done(at, &format!("{begin} --lr {lr} {same} --out said{i}"));
        done(at, &format!("{begin} --lr 0.01 --out other{i}"));
        let last = |name: &str| at.join(format!("{name}{i}/checkpoint-000003.safetensors"));
        assert!(checkpoint::content(&last("plain")) == checkpoint::content(&last("said")), "{task}");
        assert!(checkpoint::state(&last("plain")) != checkpoint::state(&last("other")), "{task}");
    }
}

/// A loss divided by another number gives the same training in f32 with any optimizer; by a power of two, bit for bit.
#[test]
fn a_divisor_changes_no_training() {
    let directory = tempfile::tempdir().expect("a directory");
    let at = directory.path();
    let mut all: Vec<Vec<String>> = Vec::new();
    for (i, options) in [
        "--lr 0.02",
        "--optimizer sgd --lr 0.02",
        "--optimizer sgd:momentum=0.9,nesterov=yes --lr 0.02",
        "--optimizer adam --lr 0.02",
        "--optimizer adam --lr 0.02 --weight-decay 0.1",
        "--optimizer adam:eps=0.01 --lr 0.02",
        "--optimizer adamw --lr 0.02 --weight-decay 0.5",
        "--optimizer adamw --lr 0.02",
        "--optimizer lamb --lr 0.02 --weight-decay 0.1",
        "--optimizer rmsprop:centered=yes,momentum=0.5 --lr 0.02 --weight-decay 0.1",
        "--optimizer adagrad --lr 0.02 --weight-decay 0.1",
        "--optimizer lion --lr 0.02 --weight-decay 0.5",
        "--lr 0.02 --clip 0.5",
        "--lr 0.02 --weight-decay 0.1",
        "--lr 0.02 --schedule cosine",
        "--lr 0.02 --schedule constant:warmup=4",
        "--lr 0.02 --schedule step:at=3/6",
    ]
    .into_iter()
    .enumerate()
    {
        for pixels in ["batch", "2048"] {
            done(at, &format!("{MLP} --iters 9 --method fp32 {options} --pixels {pixels} --out {i}-{pixels}"));
        }
        let [mean, divided] = ["batch", "2048"].map(|pixels| losses(&at.join(format!("{i}-{pixels}"))));
        assert_eq!(mean, divided, "{options}");
        // Every option changes the training.
        assert!(all.iter().all(|other| *other != mean), "{options}");
        all.push(mean);
    }
}

#[test]
fn a_resumed_training_has_the_same_optimizer() {
    let directory = tempfile::tempdir().expect("a directory");
    let at = directory.path();
    let options =
        "--optimizer adamw:beta1=0.8 --schedule cosine:steps=12,warmup=2 --weight-decay 0.1 --clip 1 --lr 0.01";
    done(at, &format!("{MLP} {options} --iters 9 --out whole"));
    done(at, &format!("{MLP} {options} --iters 5 --out part"));
    done(at, "train --resume part --iters 9");
    let [whole, part] = ["whole", "part"].map(|name| at.join(name).join("checkpoint-000009.safetensors"));
    assert!(checkpoint::state(&whole) == checkpoint::state(&part), "another training");
    for saved in [settings(&whole), settings(&part)] {
        let expected = serde_json::json!([0.01, "adamw:beta1=0.8", "cosine:steps=12,warmup=2", 0.1, 1.0]);
        let found = ["lr", "optimizer", "schedule", "weight_decay", "clip"].map(|name| saved[name].clone());
        assert_eq!(Value::from(found.to_vec()), expected);
    }
    for option in ["--lr 0.01", "--optimizer adam", "--schedule constant", "--weight-decay 0", "--clip 1"] {
        refused(at, &format!("train --resume part {option}"), "'--resume <DIR>' cannot be used with '--");
    }
    // The length of a schedule is that of the training that was begun.
    done(at, &format!("{MLP} --schedule cosine --iters 4 --out short"));
    assert_eq!(settings(&at.join("short/checkpoint-000004.safetensors"))["schedule"], "cosine:steps=4");
    refused(at, "train --resume short --iters 5", "--iters 5: the schedule's learning rate is 0 from step 4 on");
    done(at, "train --resume short --iters 4");
}

/// A checkpoint from before these options existed means the defaults, which a resume prints.
#[test]
fn checkpoints_of_before_have_the_usual_optimizer() {
    let directory = tempfile::tempdir().expect("a directory");
    let at = directory.path();
    fs::create_dir(at.join("old")).expect("a directory");
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/old/checkpoint-000002.safetensors");
    assert!(!String::from_utf8_lossy(&fs::read(&file).expect("a file")).contains("weight_decay"));
    fs::copy(file, at.join("old/checkpoint-000002.safetensors")).expect("a copy");
    done(at, "train --resume old --iters 3");
    let saved = settings(&at.join("old/checkpoint-000003.safetensors"));
    assert_eq!((&saved["optimizer"], &saved["schedule"]), (&"sgd:momentum=0.9".into(), &"constant".into()));
    assert_eq!((&saved["weight_decay"], &saved["clip"]), (&5e-4.into(), &Value::Null));
    // The test `resume` covers the resumed training.
}

/// Results, report and table name the optimizer, and a file can contain its options.
#[test]
fn results_say_how_weights_were_updated() {
    let directory = tempfile::tempdir().expect("a directory");
    let at = directory.path();
    let file = "task = \"classify\"\nnet = \"mlp\"\nwidth = 2\nbatch = 8\niters = 3\nmethods = \"fp32\"\nout = \"c\"\n\
                lr = 0.01\noptimizer = \"adam:beta1=0.8,eps=1e-6\"\nschedule = \"cosine:warmup=1\"\nclip = 2\npixels = 64\n";
    fs::write(at.join("run.toml"), file).expect("a file");
    done(at, "compare --config run.toml");
    let read = |name: &str| fs::read_to_string(at.join("c").join(name)).expect("a file");
    let json: Value = serde_json::from_str(&read("results.json")).expect("JSON");
    let arguments = &json["arguments"];
    assert_eq!((&arguments["lr"], &arguments["clip"]), (&0.01.into(), &2.0.into()));
    assert_eq!(arguments["optimizer"], "adam:beta1=0.8,eps=1e-6");
    assert_eq!(arguments["schedule"], "cosine:steps=3,warmup=1");
    assert_eq!(arguments["weight_decay"], 0.0);
    let sentence = "Optimizer adam:beta1=0.8,eps=1e-6, learning rate 0.01 (cosine:steps=3,warmup=1), weight decay 0, \
                    gradients clipped to a norm of 2.";
    for (name, text) in [("table.md", read("table.md")), ("report.html", read("report.html"))] {
        assert!(text.contains(sentence) && text.contains("and Adam"), "{name}");
    }
    assert!(read("report.html").contains("<dt>optimizer</dt><dd>adam:beta1=0.8,eps=1e-6</dd>"));
    // Defaults are only in the settings, and the second network of two towers is added only if no rate was given.
    done(at, "compare --iters 1 --width 2 --methods fp32 --lr 0.05 --out d");
    let out = fs::read_to_string(at.join("d/table.md")).expect("a table");
    assert!(!out.contains("towers") && out.contains("Optimizer sgd:momentum=0.9, learning rate 0.05"), "{out}");
    done(at, "compare --task classify --net mlp --iters 1 --width 2 --methods fp32 --lr 0.05 --out e");
    let out = fs::read_to_string(at.join("e/table.md")).expect("a table");
    assert!(!out.contains("Optimizer"), "{out}");
}

#[test]
fn what_makes_no_sense_is_refused() {
    let directory = tempfile::tempdir().expect("a directory");
    let at = directory.path();
    let cases = [
        ("--lr=", "must be a number from 1e-12 to 1000"),
        ("--lr 0", "must be a number from 1e-12 to 1000"),
        ("--lr -0.1", "must be a number from 1e-12 to 1000"),
        ("--lr NaN", "must be a number from 1e-12 to 1000"),
        ("--lr 1e999", "must be a number from 1e-12 to 1000"),
        ("--lr fast", "must be a number from 1e-12 to 1000"),
        ("--lr 0.1 --lr 0.2", "cannot be used multiple times"),
        ("--weight-decay -1", "must be a number from 0 to 1000"),
        ("--weight-decay inf", "must be a number from 0 to 1000"),
        ("--clip 0", "must be a number from 1e-12 to 1e12"),
        ("--clip nan", "must be a number from 1e-12 to 1e12"),
        ("--optimizer=", "\"\" is not an optimizer; choose sgd, adam, adamw, lamb, rmsprop, adagrad or lion"),
        ("--optimizer lars", "\"lars\" is not an optimizer; choose sgd, adam, adamw, lamb, rmsprop, adagrad or lion"),
        ("--optimizer rmsprop:alpha=1", "alpha must be a number from 0 to below 1"),
        ("--optimizer rmsprop:centered=1", "centered is yes or no, not \"1\""),
        (
            "--optimizer rmsprop:nesterov=yes",
            "rmsprop has no option \"nesterov\"; its options are alpha, momentum, centered",
        ),
        ("--optimizer adagrad:eps=0", "eps must be a number from 1e-17 to 1"),
        ("--optimizer lion:eps=1e-8", "lion has no option \"eps\"; its options are beta1, beta2"),
        ("--optimizer lamb:beta1=2", "beta1 must be a number from 0 to below 1"),
        ("--optimizer sgd:", "\"\" is not OPTION=VALUE"),
        ("--optimizer sgd:momentum", "\"momentum\" is not OPTION=VALUE"),
        ("--optimizer sgd:momentum=1", "momentum must be a number from 0 to below 1, not \"1\""),
        ("--optimizer sgd:momentum=-0.1", "momentum must be a number from 0 to below 1"),
        ("--optimizer sgd:momentum=NaN", "momentum must be a number from 0 to below 1"),
        ("--optimizer sgd:momentum=0.9,momentum=0.9", "\"momentum\" is given twice"),
        ("--optimizer sgd:nesterov=yes", "nesterov needs sgd with momentum"),
        ("--optimizer sgd:momentum=0.9,nesterov=1", "nesterov is yes or no, not \"1\""),
        ("--optimizer sgd:beta1=0.9", "sgd has no option \"beta1\"; its options are momentum, nesterov"),
        ("--optimizer adam:momentum=0.9", "adam has no option \"momentum\"; its options are beta1, beta2, eps"),
        ("--optimizer adam,lr=3", "adam has no option \"lr\"; its options are beta1, beta2, eps"),
        ("--optimizer adamw:beta2=1e999", "beta2 must be a number from 0 to below 1"),
        ("--optimizer adam:eps=0", "eps must be a number from 1e-17 to 1"),
        ("--optimizer adam:eps=1e-17 --pixels 2048", "eps becomes 3.9e-20, below 1e-17"),
        ("--net towers --optimizer adam", "two towers need sgd"),
        ("--schedule=", "\"\" is not a schedule; choose constant, step, cosine or polynomial"),
        ("--schedule linear", "\"linear\" is not a schedule"),
        ("--schedule constant:steps=3", "constant has no option \"steps\"; its options are warmup"),
        ("--schedule step", "step needs every or at, as in step:every=100 or step:at=200/300"),
        ("--schedule step:every=3,at=4", "every and at cannot be combined"),
        ("--schedule step:at=4/4", "at must be increasing steps"),
        ("--schedule step:every=0", "every must be a whole number of steps from 1 to 2^40"),
        ("--schedule step:every=3,factor=2", "factor must be a number between 0 and 1"),
        ("--schedule cosine:steps=18446744073709551616", "steps must be a whole number of steps from 1 to 2^40"),
        ("--schedule cosine:steps=10,warmup=10", "a warm-up of 10 steps must be shorter than the schedule's 10"),
        (
            "--schedule cosine:warmup=3",
            "--schedule cosine:warmup=3: a warm-up of 3 steps must be shorter than the \
            schedule's 3",
        ),
        ("--schedule polynomial:power=0", "power must be a number above 0, to 100"),
    ];
    let small = "--task classify --width 2 --batch 8 --iters 3";
    for (i, (options, said)) in cases.into_iter().enumerate() {
        let command = ["train", "compare --methods fp32"][i % 2];
        refused(at, &format!("{command} {small} {options}"), said);
    }
    assert_eq!(fs::read_dir(at).expect("a directory").count(), 0, "errors leave nothing behind");
}
