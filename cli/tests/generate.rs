//! Image generation: training, comparison, resume, generation, and unusable data.

mod checkpoint;
mod command;

use command::{done, log, refused, saved, table};
use std::{fs, path::Path};

const SMALL: [&str; 7] = ["train", "--task", "generate", "--width", "2", "--batch", "8"];

#[test]
fn it_comes_nearer_to_digits_that_are_made_up() {
    let directory = tempfile::tempdir().expect("a directory");
    let at = directory.path();
    let settings =
        ["--width", "8", "--batch", "16", "--iters", "300", "--lr", "0.001", "--eval-every", "100", "--out", "run"];
    done(at, &[&["train", "--task", "generate"], &settings[..]].concat());
    let log = log(&at.join("run"));
    let last = &log.last().expect("a line")["scores"];
    println!("{last}");
    let number = |name: &str| last[name].as_f64().expect("a number");
    let early = log[99]["validation"]["frechet_distance"].as_f64().expect("a number");
    assert!(number("nearness") > 0.1 && number("frechet_distance") < 0.3 * early, "{last}, {early}");
    assert!(number("variety") > 0.2, "{last}");
    let losses = |line: &serde_json::Value| ["D", "G"].map(|name| line["losses"][name].as_f64().expect("a loss"));
    for line in &log {
        let [d, g] = losses(line);
        assert!(d > 0.0 && g > 0.0 && (d + g - line["loss"].as_f64().expect("a loss")).abs() < 1e-5, "{line}");
    }
    let report = fs::read_to_string(at.join("run/report.html")).expect("a report");
    for said in [
        "Generated images",
        "<b>real</b>",
        "<b>nearness</b> on the validation set",
        "<b>Loss of D</b>",
        "<b>Loss of \
            G</b>",
    ] {
        assert!(report.contains(said), "{said}");
    }
    assert!(!report.contains("accuracy</b>") && !report.contains("<script"));
}

#[test]
fn resumed_it_is_the_same_training_and_makes_the_same_images() {
    let directory = tempfile::tempdir().expect("a directory");
    let at = directory.path();
    for method in ["gs", "dynamic"] {
        let [whole, broken] = ["whole", "broken"].map(|name| format!("{method}-{name}"));
        let settings = [&SMALL[..], &["--method", method, "--checkpoint-every", "2"]].concat();
        done(at, &[&settings[..], &["--iters", "7", "--out", &whole]].concat());
        done(at, &[&settings[..], &["--iters", "3", "--out", &broken, "--trace", &format!("{method}.trace")]].concat());
        done(at, &["train", "--resume", &broken, "--iters", "7"]);
        // But for the trace, which is a setting.
        let read = |name: &str| checkpoint::state(&saved(&at.join(name), 7));
        assert!(read(&whole) == read(&broken), "{method}: a resumed training differs from the unbroken one");
        let losses = |name: &str| log(&at.join(name)).iter().map(|line| line["losses"].clone()).collect::<Vec<_>>();
        assert_eq!(losses(&whole), losses(&broken));
        let make = |name: &str, step: u64, out: &str| {
            let weights = saved(Path::new(name), step);
            let out = [&["predict", weights.to_str().expect("text"), "--out", out][..], &["--count", "10"]].concat();
            done(at, &out)
        };
        assert!(make(&whole, 7, "one").contains("made.png: 10 images"));
        make(&broken, 7, "two");
        let png = |out: &str| image::open(at.join(out).join("made.png")).expect("an image").into_rgb8();
        assert_eq!((png("one").dimensions(), png("one")), ((8 * 28, 2 * 28), png("two")));
    }
    // The trace of both networks' steps can be replayed.
    let trace = fs::read_to_string(at.join("gs.trace")).expect("a trace");
    for site in ["D:discriminator.main.2/dgrad", "G:discriminator.main.2/dgrad", "G:generator.main.3/dgrad"] {
        assert!(trace.contains(site), "{site}");
    }
    done(at, &["replay", "gs.trace", "--out", "replayed"]);
    // TensorBoard has both losses.
    let events = fs::read_dir(at.join("gs-whole/tensorboard")).expect("a directory").next().expect("a file");
    let events = fs::read(events.expect("a file").path()).expect("bytes");
    for tag in ["train/loss/D", "train/loss/G", "test/frechet_distance", "test/variety"] {
        assert!(events.windows(tag.len()).any(|window| window == tag.as_bytes()), "{tag}");
    }
    let error = refused(at, &["predict", "gs-whole/checkpoint-000007.safetensors", "one/made.png"]);
    assert!(error.contains("made.png") || error.contains("give no files"), "{error}");
}

#[test]
fn comparing_shows_distances_over_seeds() {
    let directory = tempfile::tempdir().expect("a directory");
    let at = directory.path();
    let arguments = ["compare", "--task", "generate", "--width", "2", "--batch", "8", "--iters", "3", "--seeds", "0,1"];
    done(at, &[&arguments[..], &["--methods", "fp32,gs", "--out", "results"]].concat());
    let out = table(at, "results");
    assert!(out.contains("| method | nearness % | variety % | Fréchet distance |") && out.contains(" ± "), "{out}");
    assert!(!out.contains("accuracy"), "{out}");
    let results = fs::read_to_string(at.join("results/results.json")).expect("results");
    let results: serde_json::Value = serde_json::from_str(&results).expect("JSON");
    let runs = results["runs"].as_array().expect("runs");
    assert_eq!(runs.len(), 4);
    for run in runs {
        assert!(run["metrics"]["frechet_distance"].is_f64(), "{}", run["metrics"]);
        assert_eq!(run["losses"]["G"].as_array().expect("losses").len(), 3);
        // Ten steps are too few for any result, and the doubts report that.
        assert!(run["doubts"].as_array().expect("doubts").iter().any(|doubt| {
            doubt.as_str().is_some_and(|doubt| doubt.contains("all generated images are nearly the same"))
        }));
    }
    let plan = done(at, &["plan", "--task", "generate"]);
    assert!(plan.contains("generator.main.9") && plan.contains("discriminator.main.8"), "{plan}");
    let plan = done(at, &["plan", "--task", "generate", "--size", "paper"]);
    assert!(plan.contains("generator.main.12") && plan.contains("discriminator.main.11"), "{plan}");
}

#[test]
fn a_classifier_tells_what_pixels_do_not() {
    let directory = tempfile::tempdir().expect("a directory");
    let at = directory.path();
    done(at, &["train", "--net", "mlp", "--width", "4", "--iters", "40", "--out", "digits"]);
    let features = "digits/checkpoint-000040.safetensors";
    let settings = [&SMALL[..], &["--features", features, "--iters", "2"]].concat();
    let out = done(at, &[&settings[..], &["--out", "run"]].concat());
    assert!(out.contains("images are compared by the 10 outputs of ") && out.contains(features), "{out}");
    // Other pixels: means of grey values are at most 1 each, logits are not.
    let pixels = done(at, &[&SMALL[..], &["--iters", "2", "--out", "pixels"]].concat());
    assert!(pixels.contains("images are compared by the pixel means"), "{pixels}");
    let distance = |name: &str| log(&at.join(name))[1]["scores"]["frechet_distance"].as_f64().expect("a number");
    assert!(distance("run") > 0.0 && distance("run") != distance("pixels"));
    // A resume finds the data from any working directory.
    fs::create_dir(at.join("elsewhere")).expect("a directory");
    done(&at.join("elsewhere"), &["train", "--resume", "../run", "--iters", "3"]);
    let with = |features: &str| refused(at, &[&SMALL[..], &["--iters", "1", "--features", features]].concat());
    assert!(with("none").starts_with("gradscale: none: "), "{}", with("none"));
    let error = with("run/checkpoint-000003.safetensors");
    assert!(error.ends_with("not a classifier of images; train one with gradscale train --task classify"), "{error}");
    fs::write(at.join("text"), "no checkpoint").expect("a file");
    assert!(with("text").contains("/text: not a safetensors file"), "{}", with("text"));
}

fn train<'a>(more: &[&'a str]) -> Vec<&'a str> {
    [&SMALL[..], &["--iters", "1"], more].concat()
}

#[test]
fn what_cannot_be_used_says_why_in_one_line() {
    let directory = tempfile::tempdir().expect("a directory");
    let at = directory.path();
    for (class, grey) in [("a", 10), ("b", 200)] {
        fs::create_dir_all(at.join("large").join(class)).expect("a directory");
        for i in 0..10 {
            let image = image::GrayImage::from_pixel(40, 36, image::Luma([grey + i]));
            image.save(at.join(format!("large/{class}/{i}.png"))).expect("a file");
        }
    }
    let error = refused(at, &train(&["--data", "large"]));
    assert!(error.contains("images of 36 × 40: the network generates images of 32 × 32; --size 32x32"), "{error}");
    // Resized, in colour or not, or in the paper's larger square.
    done(at, &train(&["--data", "large", "--size", "20x32", "--out", "resized"]));
    // Classes have no meaning for this task: one is enough, and options about classes are refused, also for synthetic
    // data.
    for i in 0..10 {
        let from = at.join(format!("large/b/{i}.png"));
        fs::rename(from, at.join(format!("large/a/b{i}.png"))).expect("a file");
    }
    fs::remove_dir(at.join("large/b")).expect("an empty directory");
    done(at, &train(&["--data", "large", "--size", "20x32", "--out", "alone"]));
    let error = refused(at, &train(&["--label", "x"]));
    assert_eq!(error, "gradscale: --label: does not apply to images without classes");
    fs::write(at.join("rows.csv"), "x,label\n1,0\n2,1\n3,0\n4,1\n5,0\n6,1\n").expect("a file");
    let error = refused(at, &train(&["--data", "rows.csv"]));
    assert!(error.contains("has rows of numbers, but a generator needs images"), "{error}");
    let error = refused(at, &["train", "--task", "generate", "--network", "mlp"]);
    assert!(error.contains("is for --task classify, not for generate"), "{error}");
    let error = refused(at, &["predict", "resized/checkpoint-000001.safetensors", "large/a/1.png"]);
    assert!(error.contains("give no files") || error.contains("36 × 40"), "{error}");
    done(at, &["train", "--net", "mlp", "--width", "1", "--iters", "1", "--out", "digits"]);
    let error = refused(at, &["predict", "digits/checkpoint-000001.safetensors"]);
    assert!(error.ends_with("name the images, recordings or texts to predict"), "{error}");
}
