//! Real data, where they are at hand: `GRADSCALE_DATA` names the folder that has camvid-90x120 and its sisters.
//!
//! Expected values are from the descriptions that came with the data, made with other programs.

use gradscale_cli::data::{
    Boxed, Classification, Corpus, DataOptions, Pair, Parallel, Pieces, Segmentation, Split, Tokens, Vocabulary, text,
};
use std::{env, path::PathBuf, time::Instant};

/// Median-frequency weights of the 11 classes at full size.
const WEIGHTS: [f64; 11] = [
    0.279_297_56,
    0.201_729,
    4.786_517_35,
    0.149_018_32,
    1.0,
    0.421_699_72,
    3.846_682_25,
    1.973_585_51,
    0.788_939_57,
    6.374_724_29,
    8.858_733_23,
];

/// Returns a folder of the real data. If it does not exist, prints that and returns `None`.
fn real(name: &str) -> Option<PathBuf> {
    let path = env::var_os("GRADSCALE_DATA").map(|folder| PathBuf::from(folder).join(name));
    let path = path.filter(|path| path.is_dir());
    match &path {
        Some(_) => println!("{name}: running"),
        None => println!("SKIPPED: {name} (GRADSCALE_DATA does not name a folder that has it)"),
    }
    path
}

fn histogram(labels: &[u8]) -> [u64; 12] {
    let mut counts = [0; 12];
    labels.iter().for_each(|&label| counts[usize::from(label)] += 1);
    counts
}

/// Mean of each channel.
fn means(split: &Split) -> [f64; 3] {
    [0, 1, 2].map(|channel| {
        let values = split.images.memory()[channel..].iter().step_by(3);
        values.map(|&value| f64::from(value)).sum::<f64>() / split.labels.memory().len() as f64
    })
}

struct Expected {
    size: [usize; 2],
    train: [u64; 12],
    test: [u64; 12],
    train_mean: [f64; 3],
    test_mean: [f64; 3],
    /// Maximum difference of the means, because JPEG decoders differ.
    mean_off: f64,
    /// Maximum relative difference of the class weights.
    weights_off: f64,
}

fn camvid(name: &str, expected: &Expected) {
    let Some(path) = real(name) else { return };
    let start = Instant::now();
    let data = Segmentation::load(path, &DataOptions::default()).expect("the data set");
    println!("{name}: loaded in {:.2} s", start.elapsed().as_secs_f64());
    assert_eq!((data.name.as_str(), data.ignore, data.classes.len()), (name, Some(11), 11));
    assert_eq!((data.classes[9].as_str(), data.colours[10]), ("Pedestrian", [0, 128, 192]));
    assert_eq!((data.train.count, data.test.count), (367, 233));
    for (split, histogram_, mean) in
        [(&data.train, expected.train, expected.train_mean), (&data.test, expected.test, expected.test_mean)]
    {
        assert_eq!([split.height, split.width], expected.size);
        assert_eq!(histogram(split.labels.memory()), histogram_);
        for (found, mean) in means(split).into_iter().zip(mean) {
            assert!((found - mean).abs() <= expected.mean_off, "mean {found}, expected {mean}");
        }
    }
    let weights = &data.weights;
    let off =
        weights.iter().zip(WEIGHTS).map(|(found, weight)| (f64::from(*found) / weight - 1.0).abs()).fold(0.0, f64::max);
    println!("{name}: weights are off by {off:.1e} at most");
    assert!(off <= expected.weights_off, "{weights:?}");
}

#[test]
fn camvid_quarter() {
    camvid(
        "camvid-90x120",
        &Expected {
            size: [90, 120],
            train: [664311, 920813, 39165, 1259868, 177706, 384685, 46516, 44536, 232340, 25251, 11545, 156864],
            test: [427277, 618410, 29953, 651993, 233448, 282080, 25725, 29793, 99923, 16042, 4743, 97013],
            train_mean: [105.065, 108.440, 110.361],
            test_mean: [96.823, 99.546, 101.094],
            mean_off: 0.0005,
            weights_off: 0.02,
        },
    );
}

#[test]
fn camvid_half() {
    camvid(
        "camvid-180x240",
        &Expected {
            size: [180, 240],
            train: [2655759, 3682975, 156038, 5040098, 710515, 1539084, 185523, 178727, 929651, 101362, 46192, 628476],
            test: [1708023, 2474575, 118487, 2609234, 933119, 1130253, 101637, 119001, 400141, 63700, 19053, 388377],
            train_mean: [105.099, 108.483, 110.386],
            test_mean: [96.849, 99.591, 101.121],
            mean_off: 0.2,
            weights_off: 0.01,
        },
    );
}

#[test]
fn camvid_full() {
    camvid(
        "camvid-360x480",
        &Expected {
            size: [360, 480],
            train: [
                10682767, 14750079, 623349, 20076880, 2845085, 6166762, 743859, 714595, 3719877, 405385, 184967,
                2503995,
            ],
            test: [
                6870982, 9906732, 473895, 10390661, 3731857, 4530895, 406612, 476807, 1599124, 255232, 76220, 1543383,
            ],
            train_mean: [104.982, 108.351, 110.240],
            test_mean: [96.743, 99.453, 100.976],
            mean_off: 0.2,
            weights_off: 1e-7,
        },
    );
}

#[test]
fn fashion_mnist() {
    let Some(path) = real("fashion-mnist-10k") else { return };
    let (train, test) = Classification::load_idx(path, &DataOptions::default()).unwrap();
    for (part, count, mean, expected) in [
        (&train, 10000, 0.286_309, [942, 1027, 1016, 1019, 974, 989, 1021, 1022, 990, 1000, 0, 0]),
        (&test, 2000, 0.287_023, [200, 203, 214, 190, 219, 195, 197, 200, 194, 188, 0, 0]),
    ] {
        assert_eq!((part.count, part.height, part.width, part.channels, part.classes), (count, 28, 28, 1, 10));
        let labels: Vec<u8> = part.labels.iter().map(|label| u8::try_from(*label).unwrap()).collect();
        assert_eq!(histogram(&labels), expected);
        let sum: f64 = part.features.memory().iter().map(|&value| f64::from(value)).sum();
        assert!((sum / 255.0 / part.features.memory().len() as f64 - mean).abs() < 5e-7);
    }
}

#[test]
fn multi30k() {
    let Some(path) = real("text/multi30k-en-de") else { return };
    let begin = Instant::now();
    let reading = DataOptions { validation: true, ..DataOptions::default() };
    let data = Parallel::load(&path, &reading).expect("sentences");
    println!("read in {:.1} s: {:?}", begin.elapsed().as_secs_f64(), data.notes);
    let validation = data.validation.as_ref().expect("a part of its own");
    assert_eq!(data.languages.to_string(), "en-de");
    let left_out: usize = 29000 - data.train.len();
    assert!(left_out < 100 && validation.len() == 1014 && data.test.len() == 1000, "{:?}", data.notes);
    assert_eq!(data.pieces.each_ref().map(Pieces::count), [2000, 2000]);
    // Bytes of all lines, with their ends, as the description has them.
    let bytes = |language: usize| data.test.iter().map(|pair| pair.texts[language].len() + 1).sum::<usize>();
    assert_eq!([bytes(0), bytes(1)], [62076, 70649]);
    // Every sentence comes back from its pieces, but for letters that training has not.
    let whole = |pair: &&Pair| {
        let spaced = pair.texts[1].split_whitespace().collect::<Vec<_>>().join(" ");
        data.pieces[1].text(&pair.pieces[1]) == spaced
    };
    let back = data.test.iter().filter(whole).count();
    println!("{back} of 1000 test sentences come back from their pieces");
    assert!(back >= 995, "{back}");
}

/// Tokens of published texts, by their description.
#[test]
fn texts() {
    if let Some(path) = real("text/wikitext-2") {
        let data = Corpus::load(&path, &DataOptions::default()).expect("text");
        assert_eq!((data.train.len(), data.test.len()), (217_646, 245_569));
        assert_eq!((data.vocabulary.tokens(), data.vocabulary.len()), (Tokens::Words, 13_777));
        let unknown = data.vocabulary.number("<unk>").expect("is there");
        assert_eq!(data.counts[unknown as usize], 11_718);
        let test = text(&path.join("test.txt")).expect("text");
        let words: Vec<&str> = Tokens::Words.split(&test).collect();
        assert_eq!(words.iter().filter(|word| **word == "<unk>").count(), 15_218);
        assert_eq!(Vocabulary::new(Tokens::Words, &words).len(), 14_143);
        // Equal to the original text except for blanks.
        let again = data.vocabulary.text(&data.train);
        let valid = text(&path.join("valid.txt")).expect("text");
        assert!(again.split_whitespace().eq(valid.split_whitespace()));
        assert_eq!(again.lines().count(), valid.lines().count());
    }
    if let Some(path) = real("text/tinyshakespeare") {
        let data = Corpus::load(&path, &DataOptions::default()).expect("text");
        assert_eq!((data.vocabulary.tokens(), data.vocabulary.len()), (Tokens::Characters, 65));
        assert_eq!(data.train.len() + data.test.len(), 1_115_394);
        assert_eq!(data.vocabulary.text(&data.train[..14]), "First Citizen:");
    }
}

/// Two of the 4888 boxes have no area: one in `train.txt`, one in `val.txt`.
#[test]
fn bccd() {
    let Some(path) = real("bccd") else { return };
    let data = Boxed::load(&path, &DataOptions::default()).expect("the data set");
    assert_eq!((data.train.len(), data.test.len(), data.classes.join(" ")), (292, 72, "Platelets RBC WBC".to_owned()));
    let count = |part: &[gradscale_cli::data::Pictured]| {
        let classes: Vec<usize> = part.iter().flat_map(|one| &one.truths).map(|truth| truth.class).collect();
        [1, 2, 3].map(|class| classes.iter().filter(|one| **one == class).count())
    };
    assert_eq!((count(&data.train), count(&data.test)), ([292, 3350 - 2, 301], [69, 805, 71]));
    assert_eq!(data.notes.left_out.len(), 2, "{:?}", data.notes.left_out);
    let reading = DataOptions { validation: true, memory: 0, ..DataOptions::default() };
    let parts = Boxed::load(&path, &reading).expect("the data set");
    assert_eq!((parts.train.len(), parts.validation.as_ref().map(Vec::len), parts.test.len()), (205, Some(87), 72));
    // On disk or in memory, a picture is the same.
    let of = |data: &Boxed| data.test[5].plain(64).expect("a picture");
    assert_eq!(of(&parts), of(&data));
}
