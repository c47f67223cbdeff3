//! Synthetic segmentation data: small road scenes whose class areas are as unequal as in real ones.
//!
//! Sizes, colours and noise were fixed before anything was trained on them, and are not tuned to any result: they are
//! part of the data set's definition, which a checksum pins.

use super::{
    LoadNotes, Random, Segmentation, Sources, Split,
    scene::{self, HEIGHT, UNLABELLED, WIDTH},
    tally::Tally,
    weights::median_frequency,
};

/// Names and colours of the classes; the id of a class is its position. Shares of all pixels, in percent: sky 18,
/// building 33, pole 1.1, road 25, pavement 7, tree 6, sign 0.6, car 5.5, pedestrian 1.0; unlabelled 3.2. About as in
/// CamVid, and so the weights of the classes differ as there.
const CLASSES: [(&str, [u8; 3]); 9] = [
    ("Sky", [128, 128, 128]),
    ("Building", [128, 0, 0]),
    ("Pole", [192, 192, 128]),
    ("Road", [128, 64, 128]),
    ("Pavement", [60, 40, 222]),
    ("Tree", [128, 128, 0]),
    ("Sign", [192, 128, 128]),
    ("Car", [64, 0, 128]),
    ("Pedestrian", [64, 64, 0]),
];

/// Generates the synthetic data set of road scenes for segmentation.
pub(super) fn segmentation(seed: u64) -> Segmentation {
    let (train, counts) = split(&[seed, 0], 160);
    let (test, _) = split(&[seed, 1], 40);
    let (validation, _) = split(&[seed, 5], 40);
    Segmentation {
        name: "synthetic".into(),
        classes: CLASSES.map(|(name, _)| name.into()).into(),
        colours: CLASSES.map(|(_, colour)| colour).into(),
        values: Vec::new(),
        ignore: Some(UNLABELLED),
        weights: median_frequency(&counts, CLASSES.len(), Some(UNLABELLED)),
        train,
        validation: Some(validation),
        test,
        notes: LoadNotes::default(),
    }
}

fn split(key: &[u64; 2], count: usize) -> (Split, Tally) {
    let (mut images, mut labels, mut tally) = (Vec::new(), Vec::new(), Tally::default());
    for number in 0..count {
        let mut random = Random::from_key(&[key[0], key[1], number as u64]);
        let scene = scene::draw(&mut random);
        // The light of the whole image, in 256ths, and two uniform noises for each value: its deviation is 10.
        let light = random.between(150, 300);
        for (colour, label) in scene {
            let noisy = colour.map(|value| value * light / 256 + random.between(-12, 12) + random.between(-12, 12));
            images.extend(noisy.map(|value| u8::try_from(value.clamp(0, 255)).unwrap_or(u8::MAX)));
            labels.push(label);
        }
        let first = labels.len() - HEIGHT * WIDTH;
        tally.add(number, &Tally::count(labels[first..].iter().map(|label| u32::from(*label))));
    }
    let (height, width, sources) = (HEIGHT, WIDTH, Sources::Unnamed);
    (Split { count, height, width, images: images.into(), labels: labels.into(), sources }, tally)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn checksum(data: &Segmentation) -> u32 {
        let mut crc = flate2::Crc::new();
        for bytes in [&data.train.images, &data.train.labels, &data.test.images, &data.test.labels] {
            crc.update(bytes.memory());
        }
        crc.sum()
    }

    #[test]
    fn same_seed_same_bytes() {
        let data = segmentation(0);
        assert_eq!(data, segmentation(0));
        assert_eq!(format!("{:08x}", checksum(&data)), "d0f5c36e");
        assert_ne!(checksum(&data), checksum(&segmentation(1)));
        for (split, count) in [(&data.train, 160), (&data.test, 40)] {
            assert_eq!((split.count, split.height, split.width), (count, 48, 64));
            assert!(split.consistent().is_ok());
        }
        assert_ne!(data.train.images.memory()[..1000], data.test.images.memory()[..1000]);
    }

    #[test]
    fn shares_of_classes() {
        for seed in 0..3 {
            let data = segmentation(seed);
            for split in [&data.train, &data.test] {
                let mut counts = [0; 10];
                split.labels.memory().iter().for_each(|&label| counts[usize::from(label)] += 1);
                let shares = counts.map(|count| 1e2 * f64::from(count) / split.labels.memory().len() as f64);
                let expected = [18.0, 33.0, 1.1, 25.0, 7.0, 6.0, 0.6, 5.5, 1.0, 3.2];
                for (class, (share, expected)) in shares.into_iter().zip(expected).enumerate() {
                    // A split of 40 images scatters.
                    assert!((share / expected - 1.0_f64).abs() < 0.35, "class {class}: {share:.2} %");
                }
            }
        }
    }

    #[test]
    fn every_class_in_many_images() {
        let train = segmentation(0).train;
        for class in 0..=UNLABELLED {
            let images = train.labels.memory().chunks(train.pixels()).filter(|image| image.contains(&class)).count();
            assert!(images >= 80, "class {class} occurs in {images} of {}", train.count);
        }
    }
}
