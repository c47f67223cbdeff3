//! Synthetic sentences whose subjects and verbs agree in number across the words between them.

use crate::Random;

/// Number of synthetic sentences for training; `TEST` is the number for scores.
pub const TRAIN: usize = 3000;
pub const TEST: usize = 300;

const NOUNS: [[&str; 2]; 8] = [
    ["dog", "dogs"],
    ["child", "children"],
    ["bird", "birds"],
    ["sailor", "sailors"],
    ["king", "kings"],
    ["fox", "foxes"],
    ["poet", "poets"],
    ["mouse", "mice"],
];
const VERBS: [[&str; 2]; 6] =
    [["sees", "see"], ["follows", "follow"], ["likes", "like"], ["hears", "hear"], ["paints", "paint"], ["is", "are"]];
const ADJECTIVES: [&str; 6] = ["small", "old", "red", "quiet", "happy", "tall"];
const PLACES: [&str; 4] = ["near the river", "behind the house", "under the tree", "on the hill"];

/// Generates `count` synthetic sentences, one a line.
pub fn text(seed: u64, part: u64, count: usize) -> String {
    (0..count).map(|i| sentence(&mut Random::from_key(&[seed, part, i as u64])) + "\n").collect()
}

fn sentence(random: &mut Random) -> String {
    let (subject, number) = noun(random);
    let place = if random.below(2) == 0 { format!(" {}", pick(random, &PLACES)) } else { String::new() };
    let verb = pick(random, &VERBS)[number];
    // "To be" is followed by an adjective.
    let rest = if verb == VERBS[5][number] { pick(random, &ADJECTIVES).to_owned() } else { noun(random).0 };
    format!("{subject}{place} {verb} {rest} .")
}

/// Draws a noun; returns it with 0 for singular or 1 for plural.
fn noun(random: &mut Random) -> (String, usize) {
    let number = random.below(2);
    let adjective = if random.below(3) == 0 { format!("{} ", pick(random, &ADJECTIVES)) } else { String::new() };
    (format!("the {adjective}{}", pick(random, &NOUNS)[number]), number)
}

fn pick<T: Copy>(random: &mut Random, all: &[T]) -> T {
    all[random.below(all.len())]
}
