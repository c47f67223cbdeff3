//! Object detection: training, comparison, resume, prediction, and errors in data.

mod checkpoint;

use image::{Rgb, RgbImage};
use std::{fmt::Write, fs, path::Path, process::Command};

fn gradscale(directory: &Path, arguments: &str) -> (Option<i32>, String, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_gradscale"));
    let output =
        command.args(arguments.split_whitespace()).current_dir(directory).output().expect("the program starts");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (output.status.code(), text(&output.stdout), text(&output.stderr))
}

fn done(directory: &Path, arguments: &str) -> (String, String) {
    let (code, out, error) = gradscale(directory, arguments);
    assert_eq!(code, Some(0), "{arguments}: {error}");
    (out, error)
}

/// Returns the program's only line of error message.
fn refused(directory: &Path, arguments: &str) -> String {
    let (code, _, error) = gradscale(directory, arguments);
    assert_eq!((code, error.lines().count()), (Some(2), 1), "{arguments}: {error}");
    error.trim().to_owned()
}

/// An object of an annotation: class, and corners counted from 1.
type Object = (&'static str, [i32; 4]);

fn annotate(path: &Path, [width, height]: [u32; 2], objects: &[Object]) {
    let mut xml = format!("<annotation>\n<size><width>{width}</width><height>{height}</height></size>\n");
    for (class, [left, top, right, bottom]) in objects {
        write!(
            xml,
            "<object><name>{class}</name><difficult>0</difficult>\n<bndbox><xmin>{left}</xmin><ymin>{top}</ymin>"
        )
        .expect("room");
        writeln!(xml, "<xmax>{right}</xmax><ymax>{bottom}</ymax></bndbox></object>").expect("room");
    }
    fs::write(path, xml + "</annotation>\n").expect("a file");
}

/// Ten pictures of 80 × 60 with a red and a green square each, and lists of them.
fn pictures(directory: &Path) {
    for folder in ["Annotations", "JPEGImages", "ImageSets/Main"] {
        fs::create_dir_all(directory.join(folder)).expect("a directory");
    }
    for i in 0..10u8 {
        let (red, green) = ([5 + u32::from(i), 8], [40, 10 + 2 * u32::from(i)]);
        let inside =
            |[left, top]: [u32; 2], x: u32, y: u32| (left..left + 24).contains(&x) && (top..top + 24).contains(&y);
        let image = RgbImage::from_fn(80, 60, |x, y| match (inside(red, x, y), inside(green, x, y)) {
            (true, _) => Rgb([220, 30, 30]),
            (false, true) => Rgb([30, 200, 30]),
            (false, false) => Rgb([120, 120, 130 + i]),
        });
        image.save(directory.join(format!("JPEGImages/{i}.png"))).expect("a file");
        let corners = |[left, top]: [u32; 2]| {
            [left + 1, top + 1, left + 25, top + 25].map(|side| i32::try_from(side).expect("small"))
        };
        let objects = [("red", corners(red)), ("green", corners(green))];
        annotate(&directory.join(format!("Annotations/{i}.xml")), [80, 60], &objects);
    }
    fs::write(directory.join("ImageSets/Main/train.txt"), "0\n1\n2\n3\n4\n5\n").expect("a file");
    fs::write(directory.join("ImageSets/Main/val.txt"), "6\n7\n").expect("a file");
    fs::write(directory.join("ImageSets/Main/test.txt"), "8\n9\n").expect("a file");
}

const SMALL: &str = "--task detect --data data --width 2 --batch 3 --threads 2";

#[test]
fn resumed_it_is_the_same_training_and_draws_boxes() {
    same_and_drawn("ssd-300");
}

/// The regions that a step learns from are proposed by the weights before it, and sampled at random.
#[test]
fn so_it_is_where_regions_are_proposed() {
    same_and_drawn("faster-rcnn");
}

fn same_and_drawn(network: &str) {
    let directory = tempfile::tempdir().expect("a directory");
    let at = directory.path();
    pictures(&at.join("data/one"));
    let train = format!("train {SMALL} --network {network} --checkpoint-every 2");
    let (out, _) = done(at, &format!("{train} --iters 5 --out whole"));
    assert!(out.contains("data: 16 boxes of 2 classes (green, red)"), "{out}");
    done(at, &format!("{train} --iters 3 --out broken"));
    done(at, "train --resume broken --iters 5");
    let read = |name: &str| checkpoint::content(&at.join(name).join("checkpoint-000005.safetensors"));
    assert!(read("whole") == read("broken"), "a resumed training differs from the unbroken one");
    let report = fs::read_to_string(at.join("whole/report.html")).expect("a report");
    assert!(report.contains("8: truth") && report.contains("rgb(230,30,50)") && !report.contains("Class accuracy"));
    let (out, _) = done(at, "predict whole/checkpoint-000005.safetensors data/one/JPEGImages --out seen");
    assert_eq!(out.lines().count(), 10, "{out}");
    let drawn = image::open(at.join("seen/3-boxes.png")).expect("a picture");
    assert_eq!((drawn.width(), drawn.height()), (80, 60));
    let table = fs::read_to_string(at.join("seen/boxes.tsv")).expect("a table");
    let rows: Vec<Vec<&str>> = table.lines().map(|line| line.split('\t').collect()).collect();
    assert_eq!(rows[0], ["image", "class", "score", "left", "top", "right", "bottom"]);
    for row in &rows[1..] {
        let [score, left, top, right, bottom] = [2, 3, 4, 5, 6].map(|i| row[i].parse::<f32>().expect("a number"));
        let ordered = 0.0 <= left && left <= right && right <= 80.0 && 0.0 <= top && top <= bottom && bottom <= 60.0;
        assert!(ordered && (0.01..=1.0).contains(&score) && ["red", "green"].contains(&row[1]), "{row:?}");
    }
}

#[test]
fn comparing_shows_average_precision() {
    let directory = tempfile::tempdir().expect("a directory");
    let at = directory.path();
    pictures(&at.join("data"));
    done(at, &format!("compare {SMALL} --iters 4 --methods fp32,gs --eval-every 2 --out results"));
    let out = fs::read_to_string(at.join("results/table.md")).expect("a table");
    assert!(out.contains("| method | mAP % | mAP (area) % |") && !out.contains("accuracy"), "{out}");
    let results = fs::read_to_string(at.join("results/results.json")).expect("results");
    let results: serde_json::Value = serde_json::from_str(&results).expect("JSON");
    for run in results["runs"].as_array().expect("runs") {
        let metrics = &run["metrics"];
        assert!(metrics["map_area"].is_f64() && metrics["class_map"].as_array().map(Vec::len) == Some(2), "{metrics}");
        assert!(run["scores"].as_array().is_some_and(|scores| scores.iter().any(|one| one["on"] == "validation")));
        let site = |site: &serde_json::Value| site["name"] == "net.head.regression_head.module_list.0/dgrad";
        assert_eq!(run["sites"].as_array().expect("sites").iter().any(site), run["method"] == "gs");
    }
    let (plan, _) = done(at, "plan --task detect --width 2");
    assert!(plan.contains("hard_negatives") && plan.contains("net.backbone.extra.0.10.1"), "{plan}");
    done(at, &format!("compare {SMALL} --network faster-rcnn --iters 2 --methods gs --out proposed"));
    let out = fs::read_to_string(at.join("proposed/table.md")).expect("a table");
    assert!(out.contains("# Faster R-CNN (2 channels) on data") && out.contains("| method | mAP % |"), "{out}");
    let results = fs::read_to_string(at.join("proposed/results.json")).expect("results");
    let results: serde_json::Value = serde_json::from_str(&results).expect("JSON");
    let sites = results["runs"][0]["sites"].as_array().expect("sites");
    for name in ["net.backbone.3/dgrad", "net.rpn.head.bbox_pred/dgrad", "net.roi_heads.box_head.fc6/dgrad"] {
        assert!(sites.iter().any(|site| site["name"] == name), "{name}");
    }
    let (plan, _) = done(at, "plan --network faster-rcnn --width 2");
    assert!(plan.contains("roi_align") && plan.contains("net.rpn.head.conv.0.0"), "{plan}");
    let (plan, _) = done(at, "plan --network ssd-512 --width 2");
    assert!(plan.contains("net.backbone.extra.3.2") && !plan.contains("net.backbone.extra.4.2"), "{plan}");
}

#[test]
fn what_cannot_be_used_says_why_in_one_line() {
    let directory = tempfile::tempdir().expect("a directory");
    let at = directory.path();
    let train = |data: &str| refused(at, &format!("train --task detect --data {data} --iters 1 --batch 2 --width 1"));
    let fresh = |name: &str| {
        pictures(&at.join(name));
        at.join(name)
    };
    let xml = |name: &str| fresh(name).join("Annotations/2.xml");
    let size = [80, 60];
    fs::create_dir(at.join("empty")).expect("a directory");
    assert!(train("empty").contains("empty: not a data set: expected Annotations/*.xml and JPEGImages/*.jpg"));
    annotate(&xml("outside"), size, &[("red", [5, 5, 99, 20])]);
    let error = train("outside");
    let expected = "2.xml: line 3: the box of red (5, 5 to 99, 20) lies outside its image of 60 × 80 (rows × columns)";
    assert!(error.ends_with(expected), "{error}");
    annotate(&xml("backwards"), size, &[("red", [50, 5, 9, 20])]);
    assert!(train("backwards").contains("2.xml: line 3: the box of red (50, 5 to 9, 20) ends before it begins"));
    annotate(&xml("sizes"), [60, 80], &[("red", [5, 5, 9, 20])]);
    assert!(train("sizes").contains("2.xml: declares 80 × 60 (rows × columns), but the image has 60 × 80"));
    fs::write(xml("broken"), "<annotation><object><name>red</annotation>").expect("a file");
    assert!(train("broken").contains("2.xml: invalid XML: "));
    fs::write(
        fresh("latin").join("Annotations/2.xml"),
        b"<annotation><object><name>h\xf6rn</name></object></annotation>",
    )
    .expect("a file");
    assert!(train("latin").contains("2.xml: line 1: not UTF-8 (byte 0xf6); if the file is in Latin-1"));
    fs::write(xml("other"), "<html></html>").expect("a file");
    assert!(train("other").ends_with(
        "2.xml: not a PASCAL VOC annotation: the root element is <html>, not \
        <annotation>"
    ));
    fs::write(
        xml("words"),
        "<annotation><object><name>red</name><bndbox><xmin>left</xmin></bndbox></object></annotation>",
    )
    .expect("a file");
    assert!(train("words").ends_with("2.xml: line 1: xmin is “left”, expected a number"));
    // A class that no training picture has, or that is not in the list.
    annotate(&fresh("unknown").join("Annotations/9.xml"), size, &[("blue", [5, 5, 9, 20])]);
    assert!(train("unknown").ends_with("9.xml: line 3: blue is not a class; the classes are green, red"));
    fs::write(fresh("listed").join("classes.txt"), "red\n").expect("a file");
    assert!(train("listed").contains(
        "0.xml: line 5: green is not a class; the classes are red; 7 more cannot be \
        read"
    ));
    // Files that are missing or broken.
    fs::remove_file(fresh("missing").join("JPEGImages/3.png")).expect("a file");
    let error = train("missing");
    assert!(error.contains("3.jpg: missing; ") && error.ends_with("3.xml, but no image of that name"), "{error}");
    fs::remove_file(fresh("unsaid").join("Annotations/3.xml")).expect("a file");
    assert!(train("unsaid").ends_with("3.xml: missing; 3 is in a list of images"));
    fs::write(fresh("torn").join("JPEGImages/3.png"), b"\x89PNG and nothing").expect("a file");
    assert!(train("torn").contains("3.png: cannot be decoded: "));
    fs::write(fresh("twice").join("ImageSets/Main/test.txt"), "8\n8\n").expect("a file");
    assert!(train("twice").ends_with("test.txt: line 2: 8 is listed twice"));
    fs::write(fresh("none").join("ImageSets/Main/test.txt"), "\n").expect("a file");
    assert!(train("none").ends_with("none: no images for scores"));
    fresh("bare");
    (0..10).for_each(|i| annotate(&at.join(format!("bare/Annotations/{i}.xml")), size, &[]));
    assert!(train("bare").contains("the training images have no boxes"));
    assert!(train("torn --crop 32").contains("--crop: does not apply to pictures with boxes"));
    let error = refused(at, "train --network ssd-300 --task classify --iters 1");
    assert!(error.contains("--network ssd-300: is for --task detect, not for classify"), "{error}");
}

/// Boxes without an area are skipped, which is reported; broken files are skipped on request.
#[test]
fn what_is_left_out_is_said() {
    let directory = tempfile::tempdir().expect("a directory");
    let at = directory.path();
    pictures(&at.join("data"));
    annotate(&at.join("data/Annotations/2.xml"), [80, 60], &[("red", [5, 5, 5, 20]), ("red", [0, 1, 81, 60])]);
    fs::write(at.join("data/Annotations/4.xml"), "<annotation>").expect("a file");
    let (out, error) = done(at, &format!("train {SMALL} --iters 1 --skip-broken --out run"));
    assert!(error.contains("left out: ") && error.contains("2.xml: line 3: the box of red has no area"), "{error}");
    assert!(error.contains("4.xml: invalid XML: "), "{error}");
    // Seven pictures, one of which has one box.
    assert!(out.contains("13 boxes of 2 classes"), "{out}");
    // Without lists every fifth image is for scores.
    fs::remove_dir_all(at.join("data/ImageSets")).expect("a directory");
    let (out, _) = done(at, &format!("train {SMALL} --iters 1 --skip-broken --out fifths"));
    assert!(out.contains("every fifth sample is held out for evaluation, 2 of 10"), "{out}");
}
