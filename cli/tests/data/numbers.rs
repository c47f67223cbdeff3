//! Rows of numbers in CSV files.

use crate::{files::folder, refused};
use gradscale_cli::data::{Column, DataError, DataOptions, Element, Feature, Labelled, rows};
use std::path::Path;

fn load(path: &Path, label: Option<&str>) -> Result<Labelled, DataError> {
    Labelled::load(path, &DataOptions { label: label.map(str::to_owned), ..DataOptions::default() })
}

fn numbers(bytes: &[u8]) -> Vec<f32> {
    bytes.chunks(4).map(|b| f32::from_le_bytes([b[0], b[1], b[2], b[3]])).collect()
}

const TABLE: &str = "width,height,\"kind, of it\"\n1,10,a\n3,10,b\n1,10,b\n3,10,a\n7,8,a\n";

#[test]
fn numbers_lose_the_mean_and_spread_of_their_column() {
    let dir = folder(&[("things.csv", TABLE.as_bytes())]);
    let path = dir.path().join("things.csv");
    let data = load(&path, None).unwrap();
    assert_eq!((data.name.as_str(), &data.classes[..]), ("things.csv", &["a".to_owned(), "b".to_owned()][..]));
    assert_eq!((data.train.count, data.test.count, data.train.width, data.train.element), (4, 1, 2, Element::Number));
    // Mean 2 and deviation 1; a column that is all alike has no deviation.
    let column = |name: &str, mean, deviation| Column { name: name.into(), mean, deviation, feature: Feature::Number };
    assert_eq!(data.columns, [column("width", 2.0, 1.0), column("height", 10.0, 1.0)]);
    assert_eq!(numbers(data.train.features.memory()), [-1.0, 0.0, 1.0, 0.0, -1.0, 0.0, 1.0, 0.0]);
    assert_eq!((numbers(&data.test.image(0).unwrap()), &data.train.labels[..]), (vec![5.0, -2.0], &[0, 1, 1, 0][..]));
    assert_eq!(data.notes.taken[1], "2 columns of numbers; the classes are in the column kind, of it");
    // A directory with one table is that table.
    assert_eq!(load(dir.path(), None).unwrap().train, data.train);
    // Input of a trained network.
    let other = dir.path().join("more.csv");
    std::fs::write(&other, "height;note;width\n9;x;3,\n9;y;4\n").unwrap();
    refused(rows(&other, &data.columns), "more.csv", "line 2: \"3,\" in the column width is not a number");
    std::fs::write(&other, "height;note;width\n9;x;3\n9;y;4\n").unwrap();
    let given = rows(&other, &data.columns).unwrap();
    assert_eq!(given.unknown, None);
    assert_eq!(given.features.iter().map(|row| numbers(row)).collect::<Vec<_>>(), [[1.0, -1.0], [2.0, -1.0]]);
}

#[test]
fn which_column_has_the_classes() {
    // The label column is found by name at any position, and a column without a name is skipped; tabs and a byte order
    // mark.
    let text = "\u{feff}\tLabel\tx\ty\r\n0\t10\t1\t2\r\n1\t9\t3\t4\r\n";
    let dir = folder(&[("train.csv", text.as_bytes()), ("val.csv", text.as_bytes())]);
    let data = load(dir.path(), None).unwrap();
    assert_eq!((&data.classes[..], &data.train.labels[..]), (&["9".to_owned(), "10".to_owned()][..], &[1, 0][..]));
    assert_eq!(data.columns.iter().map(|column| column.name.as_str()).collect::<Vec<_>>(), ["x", "y"]);
    assert_eq!(load(dir.path(), Some("y")).unwrap().classes, ["2", "4"]);
    refused(load(dir.path(), Some("z")), "train.csv", "line 1: no column z; the columns are , Label, x, y");
    std::fs::write(dir.path().join("val.csv"), "\tLabel\tx\tw\n").unwrap();
    refused(load(dir.path(), None), "val.csv", "line 1: columns x, w; those for training are x, y");
}

#[test]
fn tables_that_are_wrong() {
    let with = |text: &str, reading: &DataOptions| {
        let dir = folder(&[("t.csv", text.as_bytes())]);
        Labelled::load(dir.path().join("t.csv"), reading)
    };
    for (text, cause) in [
        ("", "line 1: expected a header of at least two column names"),
        ("1,2,3\n4,5,6\n", "line 1: expected the names of the columns, found the number 1; add a header line"),
        ("a,a,b\n1,2,3\n", "line 1: two columns are called a; rename one"),
        ("a,b\n", "no images"),
        ("a,b\n1,x\nbad,y\n", "line 3: \"bad\" in the column a is not a number"),
        ("a,b\n1,x\n1e39,y\n", "line 3: 1e39 in the column a is too large for f32"),
        ("a,b\n,x\n?,y\n,x\n,x\n,y\n", "line 1: no column has numbers, or words that repeat"),
        ("a;b\n3,5;x\n2,25;y\n1,5;x\n0,5;x\n0,5;y\n", "\"0,5\" in the column a has a decimal comma; write a point"),
        ("a,b\n1,x\n2,\n", "line 3: no class in the column b"),
        ("a,b\n1,x\n2\n3,4,5\n", "line 3: 1 values, expected 2; 1 more cannot be read; `skip_broken`"),
        ("a,b\n1,x\n1,x\n1,x\n1,x\n1,x\n", "one class, for training: x 4: training needs at least two"),
    ] {
        refused(with(text, &DataOptions::default()), "t.csv", cause);
    }
    // Numbers among words are words.
    for size in ["42", "inf", "1e3"] {
        let rows: String = ["S", "M", "L", size].iter().cycle().take(20).map(|size| format!("{size},x\n")).collect();
        let data = with(&format!("size,class\n{rows}L,y\nM,y\n"), &DataOptions::default());
        assert_eq!(data.expect(size).columns.len(), 4, "{size}");
    }
    let many: String = (0..400).map(|i| format!("{i},{i}.5\n")).collect();
    let refusal = with(&format!("a,b\n{many}"), &DataOptions::default()).unwrap_err().to_string();
    assert!(refusal.contains("column b: 400 different classes (0.5, 1.5"), "{refusal}");
    let text = "a,b\n1,x\nbad,x\n2,y\n3,x\n4,y\n5,x\n6\n";
    let data = with(text, &DataOptions { skip_broken: true, ..DataOptions::default() }).unwrap();
    assert_eq!((data.train.count, data.test.count), (4, 1));
    assert!(data.notes.left_out[1].ends_with("line 3: \"bad\" in the column a is not a number"), "{:?}", data.notes);
    assert!(data.notes.left_out[0].ends_with("line 8: 1 values, expected 2"), "{:?}", data.notes);
}

/// Missing numbers are the mean, words are features of their own, and a checkpoint's features read other files alike.
#[test]
fn gaps_and_words() {
    let text = "age,sex,id,class\n20,m,a1,x\n,f,b2,y\n40,m,c3,x\nNA,f,d4,y\n30,?,e5,x\n";
    let text = format!("{text}{}", (0..20).map(|i| format!("30,m,z{i},x\n")).collect::<String>());
    let utf_16: Vec<u8> =
        std::iter::once('\u{feff}').chain(text.chars()).flat_map(|c| (c as u16).to_le_bytes()).collect();
    let dir = folder(&[("t.csv", text.as_bytes()), ("wide.csv", &utf_16)]);
    let data = load(&dir.path().join("t.csv"), None).unwrap();
    let names: Vec<(&str, &Feature)> = data.columns.iter().map(|one| (one.name.as_str(), &one.feature)).collect();
    let word = |word: &str| Feature::Category(word.to_owned());
    assert_eq!(
        names,
        [("age", &Feature::Number), ("age", &Feature::Missing), ("sex", &word("f")), ("sex", &word("m"))]
    );
    let notes = data.notes.taken[1..5].join("\n");
    for note in [
        "1 column of numbers; the classes are in the column class",
        "columns of words, with a feature for each: sex 2",
        "missing numbers count as the mean, and a feature tells so: age 2",
        "the column id has 20 different words in 20 rows and is left out",
    ] {
        assert!(notes.contains(note), "{note}: {notes}");
    }
    // The training part is the four first of each five rows: ages 20, 40 and 16 times 30.
    assert!((data.columns[0].mean - 30.0).abs() < 1e-12 && (data.columns[1].mean - 0.1).abs() < 1e-12);
    let second = numbers(&data.train.image(1).unwrap());
    assert!(second[0] == 0.0 && second[1] > 1.0 && second[2] > 1.0 && second[3] < -1.0, "{second:?}");
    let wide = load(&dir.path().join("wide.csv"), None).unwrap().train;
    assert_eq!((&wide.features, &wide.labels), (&data.train.features, &data.train.labels));
    // The fifth row is for the test, so the fifth of training is in line 7 behind the header.
    let source = wide.source(4).unwrap();
    assert!(source.ends_with("wide.csv, line 7"), "{source}");
    // A checkpoint keeps the features, and those of earlier versions are numbers.
    let kept: Vec<Column> = serde_json::from_str(&serde_json::to_string(&data.columns).unwrap()).unwrap();
    assert_eq!(kept, data.columns);
    let old: Column = serde_json::from_str(r#"{"name": "age", "mean": 3.0, "deviation": 2.0}"#).unwrap();
    assert_eq!(old.feature, Feature::Number);
    let other = dir.path().join("other.csv");
    std::fs::write(&other, "sex,age\nf,\ndiverse,30\n").unwrap();
    let given = rows(&other, &kept).unwrap();
    assert_eq!(numbers(&given.features[0]), second);
    assert_eq!(
        given.unknown.as_deref(),
        Some("1 row has a word that did not occur in training, for example “diverse” in the column sex")
    );
    std::fs::write(&other, "sex,age\nf,old\n").unwrap();
    refused(rows(&other, &kept), "other.csv", "line 2: \"old\" in the column age is not a number");
}

#[test]
fn any_bytes_are_read_or_refused() {
    let dir = folder(&[]);
    let path = dir.path().join("t.csv");
    let (mut state, mut read) = (1_u64, 0);
    for _ in 0..3_000 {
        let mut bytes = TABLE.as_bytes().to_vec();
        for _ in 0..3 {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let at = usize::try_from(state >> 33).unwrap() % bytes.len();
            bytes[at] = b"\"\n,;\t1e.\xff\0-a "[usize::try_from(state >> 20).unwrap() % 13];
        }
        std::fs::write(&path, &bytes).unwrap();
        match Labelled::load(&path, &DataOptions::default()) {
            Ok(data) => {
                read += 1;
                assert!(numbers(data.train.features.memory()).iter().all(|number| number.is_finite()));
            }
            Err(error) => assert!(!error.to_string().chars().any(char::is_control), "{error}"),
        }
    }
    assert!((10..2_900).contains(&read), "{read}");
}
