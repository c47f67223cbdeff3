//! Images with boxes in the layouts of PASCAL VOC, labelImg, COCO and YOLO.

use crate::refused;
use gradscale::boxes::Corners;
use gradscale_cli::data::{Boxed, DataError, DataOptions, Pictured};
use image::{DynamicImage, ImageEncoder as _, Rgb, RgbImage, codecs::jpeg::JpegEncoder};
use std::fs;
use tempfile::TempDir;

/// Name of each image, and its one box: left, top, width and height in an image of 80 × 60.
const BOXES: [(&str, [u32; 4]); 10] = [
    ("a0", [0, 0, 20, 30]),
    ("a1", [8, 6, 16, 12]),
    ("a2", [40, 30, 40, 30]),
    ("a3", [16, 12, 24, 24]),
    ("a4", [60, 0, 20, 15]),
    ("b0", [4, 45, 8, 15]),
    ("b1", [20, 15, 20, 15]),
    ("b2", [0, 30, 40, 30]),
    ("b3", [72, 54, 8, 6]),
    ("b4", [32, 3, 16, 54]),
];

fn class(name: &str) -> &'static str {
    if name.starts_with('a') { "cat" } else { "dog" }
}

fn write(dir: &TempDir, name: &str, content: impl AsRef<[u8]>) {
    let path = dir.path().join(name);
    fs::create_dir_all(path.parent().expect("a directory")).and_then(|()| fs::write(path, content)).expect("a file");
}

fn image(dir: &TempDir, name: &str) {
    let path = dir.path().join(name);
    fs::create_dir_all(path.parent().expect("a directory")).expect("a directory");
    RgbImage::from_pixel(80, 60, Rgb([90, 120, 30])).save(path).expect("a file");
}

/// An annotation of PASCAL VOC with what may stand before it.
fn xml(begin: &str, name: &str, [left, top, width, height]: [u32; 4]) -> String {
    format!(
        "{begin}<annotation><size><width>80</width><height>60</height></size><object><name>{}</name><bndbox>\
         <xmin>{}</xmin><ymin>{}</ymin><xmax>{}</xmax><ymax>{}</ymax></bndbox></object></annotation>",
        class(name),
        left + 1,
        top + 1,
        left + width + 1,
        top + height + 1
    )
}

fn yolo(name: &str, [left, top, width, height]: [u32; 4]) -> String {
    let [left, top, width, height] = [left, top, width, height].map(f64::from);
    let class = u8::from(name.starts_with('b'));
    format!(
        "{class} {} {} {} {}\n",
        (left + width / 2.0) / 80.0,
        (top + height / 2.0) / 60.0,
        width / 80.0,
        height / 60.0
    )
}

/// A file of COCO for some of the images, whose ids have gaps.
fn coco(boxes: &[(&str, [u32; 4])]) -> String {
    let images = boxes.iter().enumerate().map(|(i, (name, _))| {
        format!(r#"{{"id": {}, "file_name": "{name}.png", "width": 80, "height": 60}}"#, 10 * i + 3)
    });
    let annotations = boxes.iter().enumerate().map(|(i, (name, corners))| {
        let category = if class(name) == "cat" { 7 } else { 2 };
        format!(
            r#"{{"id": {i}, "image_id": {}, "category_id": {category}, "bbox": {corners:?}, "iscrowd": 0, "area": 1.5}}"#,
            10 * i + 3
        )
    });
    let [images, annotations] = [images.collect::<Vec<_>>(), annotations.collect::<Vec<_>>()].map(|all| all.join(","));
    format!(
        r#"{{"info": {{}}, "images": [{images}], "annotations": [{annotations}],
            "categories": [{{"id": 2, "name": "dog", "supercategory": "x"}}, {{"id": 7, "name": "cat"}}]}}"#
    )
}

fn utf_16(text: &str) -> Vec<u8> {
    std::iter::once('\u{feff}').chain(text.chars()).flat_map(|c| (c as u16).to_le_bytes()).collect()
}

fn load(dir: &TempDir) -> Result<Boxed, DataError> {
    Boxed::load(dir.path(), &DataOptions::default())
}

/// Names, classes and corners of all images of a part.
fn boxes(data: &Boxed, part: &[Pictured]) -> Vec<(String, String, Corners)> {
    let one = |one: &Pictured| {
        let truth = one.truths.first().expect("a box");
        // Pixels, so that rounding of shares does not matter.
        let round = |share: f32, side: f32| (share * side * 8.0).round() / 8.0;
        let [left, top, right, bottom] = truth.corners;
        let corners = [round(left, 80.0), round(top, 60.0), round(right, 80.0), round(bottom, 60.0)];
        (one.name.clone(), data.classes[truth.class - 1].clone(), corners)
    };
    part.iter().map(one).collect()
}

fn expected(boxes: &[(&str, [u32; 4])]) -> Vec<(String, String, Corners)> {
    let edge = |value: u32| value as f32;
    let one = |(name, [left, top, width, height]): &(&str, [u32; 4])| {
        let corners = [edge(*left), edge(*top), edge(left + width), edge(top + height)];
        ((*name).to_owned(), class(name).to_owned(), corners)
    };
    boxes.iter().map(one).collect()
}

/// Layouts without parts, of which every fifth image is for scores: each makes its files.
#[test]
fn every_layout_has_the_same_boxes() {
    type Make = fn(&TempDir, &str, [u32; 4]);
    let each: [(&str, Make); 9] = [
        ("VOC", |dir, name, corners| {
            image(dir, &format!("JPEGImages/{name}.png"));
            let begin = "<!DOCTYPE annotation [<!ENTITY a \"b\">]>\n<!-- made by hand -->";
            write(dir, &format!("Annotations/{name}.xml"), xml(begin, name, corners));
        }),
        ("VOC in small letters", |dir, name, corners| {
            image(dir, &format!("images/{name}.png"));
            write(dir, &format!("annotations/{name}.xml"), xml("", name, corners));
        }),
        ("labelImg, with a byte order mark", |dir, name, corners| {
            image(dir, &format!("{name}.png"));
            write(dir, &format!("{name}.xml"), xml("\u{feff}<?xml version=\"1.0\"?>", name, corners));
        }),
        ("labelImg in Latin-1", |dir, name, corners| {
            image(dir, &format!("{name}.png"));
            let text = xml("<?xml version='1.0' encoding='ISO-8859-1'?><!-- \u{f6} -->", name, corners);
            let latin: Vec<u8> = text.chars().map(|c| u8::try_from(u32::from(c)).expect("Latin-1")).collect();
            write(dir, &format!("{name}.xml"), latin);
        }),
        ("YOLO", |dir, name, corners| {
            image(dir, &format!("images/{name}.png"));
            write(dir, &format!("labels/{name}.txt"), yolo(name, corners));
            write(dir, "data.yaml", "train: images\nnames:\n  0: cat\n  1: dog\n");
        }),
        ("YOLO beside the images, as polygons", |dir, name, [left, top, width, height]| {
            image(dir, &format!("{name}.png"));
            let [left, right] = [left, left + width].map(|edge| f64::from(edge) / 80.0);
            let [top, bottom] = [top, top + height].map(|edge| f64::from(edge) / 60.0);
            let number = u8::from(name.starts_with('b'));
            let points = format!("{left} {top} {right} {top} {right} {bottom} {left} {bottom}");
            write(dir, &format!("{name}.txt"), format!("{number} {points}\n"));
            write(dir, "classes.txt", "cat\ndog\n");
        }),
        ("COCO", |dir, name, _| {
            image(dir, &format!("images/{name}.png"));
            write(dir, "annotations/instances.json", coco(&BOXES));
            write(dir, "annotations/captions.json", "{}");
        }),
        ("COCO beside JSON of other programs", |dir, name, _| {
            image(dir, &format!("images/{name}.png"));
            write(dir, "result.json", utf_16(&coco(&BOXES)));
            write(dir, "notes.json", r#"{"categories": [{"id": 0, "name": "cat"}], "info": {"year": 2024}}"#);
            write(dir, "tasks.json", r#"[{"id": 1, "image": "a0.png"}]"#);
            write(dir, "package.json", "{\"name\": \"labels\"}\n");
        }),
        ("labelImg beside JSON of labelme", |dir, name, corners| {
            image(dir, &format!("{name}.png"));
            write(dir, &format!("{name}.xml"), xml("", name, corners));
            write(dir, &format!("{name}.json"), r#"{"version": "5.0", "shapes": [], "imagePath": "a0.png"}"#);
            write(dir, "settings.json", "// Tools\n{\"theme\": \"dark\",}\n");
        }),
    ];
    let (train, test): (Vec<_>, Vec<_>) = BOXES.iter().enumerate().partition(|(i, _)| i % 5 != 4);
    let [train, test] = [train, test].map(|part| part.into_iter().map(|(_, one)| *one).collect::<Vec<_>>());
    for (layout, make) in each {
        let dir = tempfile::tempdir().expect("a directory");
        BOXES.iter().for_each(|(name, corners)| make(&dir, name, *corners));
        let data = load(&dir).unwrap_or_else(|error| panic!("{layout}: {error}"));
        assert_eq!(boxes(&data, &data.train), expected(&train), "{layout}");
        assert_eq!(boxes(&data, &data.test), expected(&test), "{layout}");
    }
}

/// Layouts with parts: six images for training, two for scores during training, two for the final scores.
#[test]
fn parts_are_found_in_every_layout() {
    type Make = fn(&TempDir, &str, &[(&str, [u32; 4])]);
    let each: [(&str, Make); 5] = [
        ("COCO 2017", |dir, part, boxes| {
            boxes.iter().for_each(|(name, _)| image(dir, &format!("{part}2017/{name}.png")));
            write(dir, &format!("annotations/instances_{part}2017.json"), coco(boxes));
        }),
        ("Roboflow's COCO", |dir, part, boxes| {
            boxes.iter().for_each(|(name, _)| image(dir, &format!("{part}/{name}.png")));
            write(dir, &format!("{part}/_annotations.coco.json"), coco(boxes));
        }),
        ("YOLO, parts inside", |dir, part, boxes| {
            for (name, corners) in boxes {
                image(dir, &format!("images/{part}/{name}.png"));
                write(dir, &format!("labels/{part}/{name}.txt"), yolo(name, *corners));
            }
            write(dir, "data.yaml", "names: ['cat', 'dog']\n");
        }),
        ("YOLO, parts outside", |dir, part, boxes| {
            for (name, corners) in boxes {
                image(dir, &format!("{part}/images/{name}.png"));
                write(dir, &format!("{part}/labels/{name}.txt"), yolo(name, *corners));
            }
            write(dir, "data.yaml", "names:\n- cat\n- dog\n");
        }),
        ("labelImg in folders", |dir, part, boxes| {
            for (name, corners) in boxes {
                image(dir, &format!("{part}/{name}.png"));
                write(dir, &format!("{part}/{name}.xml"), xml("", name, *corners));
            }
        }),
    ];
    let parts = [("train", &BOXES[..6]), ("val", &BOXES[6..8]), ("test", &BOXES[8..])];
    for (layout, make) in each {
        let dir = tempfile::tempdir().expect("a directory");
        parts.iter().for_each(|(part, boxes)| make(&dir, part, boxes));
        let reading = DataOptions { validation: true, ..DataOptions::default() };
        let data = Boxed::load(dir.path(), &reading).unwrap_or_else(|error| panic!("{layout}: {error}"));
        assert_eq!(boxes(&data, &data.train), expected(&BOXES[..6]), "{layout}");
        assert_eq!(boxes(&data, data.validation.as_deref().expect(layout)), expected(&BOXES[6..8]), "{layout}");
        assert_eq!(boxes(&data, &data.test), expected(&BOXES[8..]), "{layout}");
    }
}

/// A JPEG of 80 × 60 that is shown with an EXIF orientation.
fn turned(dir: &TempDir, name: &str, orientation: u8) {
    let exif = [b"II*\0\x08\0\0\0\x01\0\x12\x01\x03\0\x01\0\0\0", &[orientation, 0, 0, 0, 0, 0, 0, 0][..]].concat();
    let mut bytes = Vec::new();
    let mut encoder = JpegEncoder::new(&mut bytes);
    encoder.set_exif_metadata(exif).expect("metadata");
    let pixels = DynamicImage::from(RgbImage::from_pixel(80, 60, Rgb([90, 120, 30])));
    pixels.write_with_encoder(encoder).expect("memory");
    write(dir, name, bytes);
}

/// An annotation without objects, of an image of 80 × 60.
const EMPTY: &str = "<annotation><size><width>80</width><height>60</height></size></annotation>";

/// The size in the annotation tells whether its boxes are those of the file or of the shown image.
#[test]
fn boxes_follow_turned_images() {
    let with = |size: Option<[u32; 2]>, orientation: u8, corners: [u32; 4]| {
        let dir = tempfile::tempdir().expect("a directory");
        for (name, corners) in BOXES {
            image(&dir, &format!("{name}.png"));
            write(&dir, &format!("{name}.xml"), xml("", name, corners));
        }
        fs::remove_file(dir.path().join("a0.png")).expect("a file");
        turned(&dir, "a0.jpg", orientation);
        let text = xml("", "a0", corners);
        let own = "<size><width>80</width><height>60</height></size>";
        let size = size.map(|[w, h]| format!("<size><width>{w}</width><height>{h}</height></size>"));
        write(&dir, "a0.xml", text.replace(own, &size.unwrap_or_default()));
        load(&dir).map(|data| data.train[0].truths[0].corners)
    };
    // A turn without boxes needs no size.
    let dir = tempfile::tempdir().expect("a directory");
    for (i, (name, corners)) in BOXES.into_iter().enumerate() {
        image(&dir, &format!("{name}.png"));
        write(&dir, &format!("{name}.xml"), xml("", name, corners));
        let empty = format!("empty{i}");
        turned(&dir, &format!("{empty}.jpg"), 3);
        write(&dir, &format!("{empty}.xml"), EMPTY);
    }
    assert_eq!(load(&dir).expect("images without boxes").train.len(), 16);
    // Top left quarter in the file; a turn to the right moves it to the top right.
    let quarter = [0, 0, 40, 30];
    assert_eq!(with(Some([80, 60]), 6, quarter).expect("boxes"), [0.5, 0.0, 1.0, 0.5]);
    assert_eq!(with(Some([80, 60]), 8, quarter).expect("boxes"), [0.0, 0.5, 0.5, 1.0]);
    // Drawn on the shown image.
    assert_eq!(with(Some([60, 80]), 6, [0, 0, 30, 40]).expect("boxes"), [0.0, 0.0, 0.5, 0.5]);
    let unclear =
        "the image is turned by its EXIF orientation, and nothing tells whether its boxes are; save it upright";
    refused(with(Some([80, 60]), 3, quarter), "a0.xml", unclear);
    refused(with(None, 6, quarter), "a0.xml", unclear);
    refused(with(Some([80, 70]), 6, quarter), "a0.xml", "declares 70 × 80 (rows × columns), but the image has 80 × 60");
}

#[test]
fn boxes_that_cannot_be_used_say_why() {
    let with = |name: &str, content: &str| {
        let dir = tempfile::tempdir().expect("a directory");
        for (name, corners) in BOXES {
            image(&dir, &format!("images/{name}.png"));
            write(&dir, &format!("labels/{name}.txt"), yolo(name, corners));
        }
        write(&dir, name, content);
        dir
    };
    for (labels, cause) in [
        ("0 0.5 0.5 0.2\n", "line 1: expected the centre, width and height of a box as shares of the image"),
        ("0 0.5 0.5 0.2 0.2 0.9\n", "line 1: expected the centre, width and height of a box"),
        ("cat 0.5 0.5 0.2 0.2\n", "line 1: does not begin with the number of a class"),
        ("\n1 40 30 20 20\n", "line 2: the box of 1 (30, 20 to 50, 40) lies outside its image of 60 × 80"),
    ] {
        refused(load(&with("labels/a0.txt", labels)), "labels/a0.txt", cause);
    }
    refused(load(&with("classes.txt", "cat\n")), "labels/b0.txt", "line 1: class 1, but only 1 classes have names");
    // A name has all words of its line, and a line that occurs twice is a mistake.
    let named = load(&with("classes.txt", "traffic light\ndog\n")).expect("data");
    assert_eq!(named.classes, ["traffic light", "dog"]);
    let dir = tempfile::tempdir().expect("a directory");
    for (name, corners) in BOXES {
        image(&dir, &format!("{name}.png"));
        write(&dir, &format!("{name}.xml"), xml("", name, corners).replace("<name>cat", "<name>traffic light"));
    }
    write(&dir, "classes.txt", "traffic light\ndog\n");
    assert_eq!(load(&dir).expect("data").classes, ["traffic light", "dog"]);
    write(&dir, "classes.txt", "traffic light\ndog\n\ndog\n");
    refused(load(&dir), "classes.txt", "line 4: dog is listed twice");
    // Classes without names are called by their numbers; images without labels have no objects.
    let dir = with("labels/a0.txt", "");
    fs::remove_file(dir.path().join("labels/a1.txt")).expect("a file");
    let data = load(&dir).expect("data");
    assert_eq!((&data.classes[..], data.train.len()), (&["0".to_owned(), "1".to_owned()][..], 8));
    assert!(data.notes.taken.contains(&"images: 1 image taken as an image without objects: no label file".to_owned()));

    let json = |text: &str| {
        let dir = tempfile::tempdir().expect("a directory");
        BOXES.iter().for_each(|(name, _)| image(&dir, &format!("images/{name}.png")));
        write(&dir, "annotations.json", text);
        dir
    };
    let whole = coco(&BOXES);
    for (text, cause) in [
        ("{\"images\": [", "not an annotation file of COCO: EOF while parsing"),
        ("{\"images\": [{\"id\": 1}]}", "not an annotation file of COCO: missing field `file_name`"),
        (&whole.replace("\"image_id\": 13", "\"image_id\": 14"), "annotation 1: no image has the id 14"),
        (&whole.replace("\"category_id\": 7", "\"category_id\": 9"), "annotation 0: no category has the id 9"),
        (&whole.replace("\"bbox\": [8, 6, 16, 12]", "\"bbox\": []"), "annotation 1: no bbox of four numbers"),
        (
            &whole.replace("[8, 6, 16, 12]", "[8, 6, 160, 12]"),
            "annotation 1: the box of cat (8, 6 to 168, 18) lies outside",
        ),
    ] {
        refused(load(&json(text)), "annotations.json", cause);
    }
    // A pixel beyond the image is within the rounding of tools, two are not; both edges are alike.
    for (corners, cause) in [
        ("[-1, 6, 16, 12]", None),
        ("[65, 6, 16, 12]", None),
        ("[-2, 6, 16, 12]", Some("the box of cat (-2, 6 to 14, 18) lies outside its image")),
        ("[66, 6, 16, 12]", Some("the box of cat (66, 6 to 82, 18) lies outside its image")),
    ] {
        let loaded = load(&json(&whole.replace("[8, 6, 16, 12]", corners)));
        match cause {
            Some(cause) => refused(loaded, "annotations.json", cause),
            None => drop(loaded.expect(corners)),
        }
    }
    refused(load(&json("{\"name\": \"x\"}")), "", "not a data set: expected Annotations/*.xml");
    // The first images may be missing; then the message names the folder that has the others.
    let dir = json(&whole);
    let nobody = dir.path().join("annotations/a1.png");
    fs::create_dir_all(nobody.parent().expect("a folder")).and_then(|()| fs::write(nobody, "")).expect("a file");
    fs::remove_file(dir.path().join("images/a0.png")).expect("a file");
    refused(load(&dir), "images/a0.png", "annotations.json lists it");
    let dir = json(&whole);
    fs::remove_file(dir.path().join("images/b1.png")).expect("a file");
    refused(load(&dir), "images/b1.png", "annotations.json lists it");
}

/// A set of difficult boxes has no score, which is said when it is read.
#[test]
fn test_boxes_that_do_not_count() {
    let dir = tempfile::tempdir().expect("a directory");
    for (name, corners) in BOXES {
        image(&dir, &format!("{name}.png"));
        let text = xml("", name, corners);
        let difficult = text.replace("<bndbox>", "<difficult>1</difficult><bndbox>");
        write(&dir, &format!("{name}.xml"), if name.ends_with('4') { difficult } else { text });
    }
    let notes = load(&dir).expect("data").notes.taken;
    let note = "no test box counts: all 2 are difficult; average precision is not defined";
    assert!(notes.contains(&note.to_owned()), "{notes:?}");
}
