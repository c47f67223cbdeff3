//! Mapping of label values to classes, from `classes.tsv` or from the values that occur.

use super::{Cause, Ignore, error::few, tally::Tally};
use std::collections::BTreeMap;

/// Classes of a data set: names, colours, label values and the ignored id.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Classes {
    /// Names of the classes; the id of a class is its position.
    pub names: Vec<String>,
    /// Colours of the classes, R G B.
    pub colours: Vec<[u8; 3]>,
    /// Id of the ignored class, if there is one.
    pub ignore: Option<u8>,
    /// Label values of the classes in files.
    pub values: Values,
}

/// Class ids by the label values that may occur in files.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Values(pub BTreeMap<u32, u8>);

/// Names by which the ignored class is recognised.
pub(super) const IGNORED: [&str; 4] = ["unlabelled", "unlabeled", "void", "ignore"];
/// Offset of label values that are colours, above all that are numbers.
const COLOUR: u32 = 1 << 24;

/// Returns the label value of a colour in a label file: grey is its number.
pub(super) fn colour_value([r, g, b]: [u8; 3]) -> u32 {
    if r == g && g == b { r.into() } else { COLOUR | u32::from_be_bytes([0, r, g, b]) }
}

/// Formats a label value: a colour as hexadecimal digits, others as a number.
fn written(value: u32, coloured: bool) -> String {
    match value {
        COLOUR.. => format!("#{:06x}", value - COLOUR),
        grey if coloured => format!("#{grey:02x}{grey:02x}{grey:02x}"),
        number => number.to_string(),
    }
}

/// Sorts names of classes: by number if all are numbers, else as text.
pub(super) fn sort_names(names: &mut [String]) {
    names.sort();
    if names.iter().all(|name| name.parse::<i64>().is_ok()) {
        names.sort_by_key(|name| name.parse::<i64>().ok());
    }
}

/// Formats a number of classes, for example `one class` or `2 classes`.
pub(super) fn classes(count: usize) -> String {
    if count == 1 { "one class".to_owned() } else { format!("{count} classes") }
}

/// Returns true if label images are coloured.
pub(super) fn coloured(tally: &Tally) -> bool {
    tally.0.keys().any(|value| *value >= COLOUR)
}

/// Returns true if the values are dense: more than half of 0 to the largest occur.
fn small(values: &[u32]) -> bool {
    values.last().is_none_or(|most| 2 * values.len() as u64 > u64::from(*most) + 1)
}

impl Values {
    /// Converts an image's label values to class ids.
    pub(super) fn classes(&self, labels: &[u32], width: usize) -> Result<Vec<u8>, Cause> {
        let mut last = None;
        let class = |(at, value): (usize, &u32)| match last {
            Some((same, class)) if same == *value => Ok(class),
            _ => {
                let class = *self.0.get(value).ok_or_else(|| self.unknown(*value, None, [at / width, at % width]))?;
                last = Some((*value, class));
                Ok(class)
            }
        };
        labels.iter().enumerate().map(class).collect()
    }

    /// Returns true if the label values are colours.
    fn coloured(&self) -> bool {
        self.0.keys().any(|value| *value >= COLOUR)
    }

    /// Returns the error for a value that is not a class.
    pub(super) fn unknown(&self, value: u32, image: Option<usize>, [row, column]: [usize; 2]) -> Cause {
        let coloured = self.coloured();
        Cause::Label {
            value: written(value, coloured),
            known: self.0.keys().map(|value| written(*value, coloured)).collect(),
            image,
            row,
            column,
        }
    }

    /// Returns the lookup table for labels of one byte; `None` if values equal ids.
    pub(super) fn table(&self) -> Option<[u8; 256]> {
        if self.0.iter().all(|(value, class)| *value == u32::from(*class)) {
            return None;
        }
        let mut table = [0; 256];
        for (value, class) in &self.0 {
            if let Some(entry) = usize::try_from(*value).ok().and_then(|value| table.get_mut(value)) {
                *entry = *class;
            }
        }
        Some(table)
    }
}

/// Returns the ignored label value: the requested one, or that of the data.
pub(super) fn chosen(asked: Option<Ignore>, itself: Option<u32>) -> Option<u32> {
    match asked {
        None => itself,
        Some(Ignore::Nothing) => None,
        Some(Ignore::Value(value)) => Some(value.into()),
    }
}

impl Classes {
    /// Returns the grey value of each class in label files; empty if it is the id, or for coloured label files.
    pub(super) fn greys(&self) -> Vec<u8> {
        let grey = |id: u8| {
            let value = self.values.0.iter().find(|(_, class)| **class == id)?.0;
            u8::try_from(*value).ok()
        };
        let greys: Vec<u8> = (0..=u8::MAX).zip(&self.names).map_while(|(id, _)| grey(id)).collect();
        let itself = greys.iter().zip(0..).all(|(grey, id)| usize::from(*grey) == id);
        if itself || greys.len() < self.names.len() || self.values.coloured() { Vec::new() } else { greys }
    }

    /// Maps label values to class ids in order, plus the ignored value. `None` for too many classes.
    pub(super) fn new(
        named: impl Iterator<Item = (u32, String, [u8; 3])>, ignored: Option<(u32, u32)>,
    ) -> Option<Self> {
        let mut classes = Self { names: Vec::new(), colours: Vec::new(), ignore: None, values: Values::default() };
        for (value, name, colour) in named {
            classes.values.0.insert(value, u8::try_from(classes.names.len()).ok()?);
            classes.names.push(name);
            classes.colours.push(colour);
        }
        if let Some((value, id)) = ignored {
            let id = u8::try_from(id).ok()?;
            let place = classes.values.0.insert(value, id);
            // An id of its own, unless it has its place among the classes.
            if place.is_none() && usize::from(id) < classes.names.len() {
                return None;
            }
            classes.ignore = Some(id);
        }
        Some(classes)
    }

    /// Infers classes from the values that occur. Dense values are ids; others are numbered in order. 255 or 65535 is
    /// ignored next to at least two dense values.
    pub(super) fn seen(tally: &Tally, ignore: Option<Ignore>) -> Result<Self, Cause> {
        let (all, coloured): (Vec<u32>, _) = (tally.0.keys().copied().collect(), coloured(tally));
        let usual =
            all.split_last().filter(|(last, rest)| [255, 65535].contains(*last) && rest.len() >= 2 && small(rest));
        let ignored = chosen(ignore, usual.map(|(last, _)| *last));
        let mut values: Vec<u32> = all.into_iter().filter(|value| Some(*value) != ignored).collect();
        let most = values.last().copied().unwrap_or(0);
        let numbers = small(&values) && most < 256 && ignored.is_none_or(|value| value > most);
        if numbers {
            values = (0..=most).collect();
        }
        let id = |value: u32| if numbers && value < 256 { value } else { 255 };
        let named = values.iter().zip(0u8..=255).map(|(&number, place)| {
            let [_, r, g, b] = number.to_be_bytes();
            let own = if number < COLOUR { [b; 3] } else { [r, g, b] };
            (number, written(number, coloured), if coloured { own } else { colour(place) })
        });
        let many = || Cause::Classes {
            found: values.len(),
            examples: values.iter().take(8).map(|one| written(*one, coloured)).collect(),
            hint: "; label images that were saved as JPEG, or have smoothed edges, have values that are no classes",
        };
        // More classes than a label can number are an error.
        let classes = Self::new(named, ignored.map(|value| (value, id(value)))).filter(|_| values.len() <= 256);
        classes.ok_or_else(many)
    }

    /// Returns a question about classes that are lines and single pixels only, as in label images that were saved as
    /// JPEG once or have smoothed edges.
    pub(super) fn smoothed(&self, tally: &Tally) -> Option<String> {
        /// Number of such classes that real data do not have: poles and signs are thin, but few.
        const MIN_THIN: usize = 3;
        /// Share of inner pixels of a real class, 1/20. An object of 3 × 3 pixels has 1/9.
        const PIXELS_PER_INNER: u64 = 20;
        let seen: Vec<_> = tally
            .0
            .iter()
            .filter(|(value, _)| self.values.0.get(value).is_some_and(|id| Some(*id) != self.ignore))
            .collect();
        let thin: Vec<_> = seen.iter().filter(|(_, count)| PIXELS_PER_INNER * count.inner < count.area).collect();
        if thin.len() < MIN_THIN || 2 * thin.len() < seen.len() {
            return None;
        }
        let coloured = self.values.coloured();
        let names: Vec<String> = thin.iter().map(|(value, _)| written(**value, coloured)).collect();
        let area: u64 = thin.iter().map(|(_, count)| count.area).sum();
        Some(format!(
            "{} of {} classes are only lines or single pixels, {:.1} % of all ({}): were label images saved as JPEG, or \
             are their edges smoothed? classes.tsv lists the true classes",
            thin.len(),
            seen.len(),
            100.0 * area as f64 / tally.pixels().max(1) as f64,
            few(&names)
        ))
    }

    /// Returns a line that lists the classes with their shares, and the ignored value.
    pub(super) fn described(&self, tally: &Tally) -> String {
        const MAX_LISTED: usize = 16;
        let coloured = self.values.coloured();
        let write = |value| written(value, coloured);
        let all = tally.pixels().max(1) as f64;
        let value =
            |class: usize| self.values.0.iter().find(|(_, id)| usize::from(**id) == class).map(|(value, _)| *value);
        let share = |class: usize| {
            let area = value(class).and_then(|value| tally.0.get(&value)).map_or(0, |count| count.area);
            if area == 0 { "nowhere".to_owned() } else { format!("{:.2} %", 100.0 * area as f64 / all) }
        };
        let counting: Vec<usize> =
            (0..self.names.len()).filter(|class| self.ignore.map(usize::from) != Some(*class)).collect();
        let one = |class: &usize| match (value(*class).map(write), &self.names[*class]) {
            (Some(value), name) if value != *name => format!("{name} ({value}) {}", share(*class)),
            (_, name) => format!("{name} {}", share(*class)),
        };
        let mut list = counting.iter().take(MAX_LISTED).map(one).collect::<Vec<_>>().join(", ");
        if counting.len() > MAX_LISTED {
            list += &format!(" and {} more", counting.len() - MAX_LISTED);
        }
        let nothing = self.ignore.map(usize::from).map_or_else(
            || "no pixel is ignored".to_owned(),
            |id| {
                let ignored = self.values.0.iter().filter(|(_, class)| usize::from(**class) == id);
                let ignored: Vec<u32> =
                    ignored.map(|(value, _)| *value).filter(|value| tally.0.contains_key(value)).collect();
                match ignored[..] {
                    [] | [_] => format!("{} is ignored ({})", value(id).map_or_else(String::new, write), share(id)),
                    [..] => {
                        let area: u64 =
                            ignored.iter().filter_map(|value| tally.0.get(value)).map(|count| count.area).sum();
                        let names: Vec<String> = ignored.into_iter().map(write).collect();
                        format!("{} are ignored ({:.2} %)", few(&names), 100.0 * area as f64 / all)
                    }
                }
            },
        );
        format!("{} by their values in the label images: {list}; {nothing}", classes(counting.len()))
    }
}

/// Returns a colour for a class that has none: bits 0, 3, 6 of the id count for red, 1, 4, 7 for green, 2, 5 for blue,
/// the lowest most, so that small ids are far apart. (The convention of PASCAL VOC.)
pub(super) fn colour(id: u8) -> [u8; 3] {
    [0, 1, 2].map(|channel| {
        (0..3)
            .filter(|bit| id.checked_shr(channel + 3 * bit).is_some_and(|id| id & 1 == 1))
            .map(|bit| 0x80 >> bit)
            .sum()
    })
}

#[cfg(test)]
mod tests {
    use super::{super::table::Table, *};

    fn seen(values: &[u32], ignore: Option<Ignore>) -> (Vec<String>, Option<u8>) {
        let classes = Classes::seen(&Tally::count(values.iter().copied()), ignore).unwrap();
        (classes.names, classes.ignore)
    }

    #[test]
    fn what_occurs_says_what_is_ignored() {
        let names = |names: &[u32]| {
            names.iter().map(|name| written(*name, names.iter().any(|name| *name >= COLOUR))).collect::<Vec<_>>()
        };
        for (values, classes, ignore) in [
            // The commonest way to store two classes.
            (&[0, 255][..], &[0, 255][..], None),
            (&[0, 1, 255], &[0, 1], Some(255)),
            (&[0, 1, 2, 255], &[0, 1, 2], Some(255)),
            (&[1, 2, 255], &[0, 1, 2], Some(255)),
            (&[1, 255], &[1, 255], None),
            (&[0, 128, 255], &[0, 128, 255], None),
            (&[0, 1, 2, 65535], &[0, 1, 2], Some(255)),
            (&[0, 65535], &[0, 65535], None),
            (&[1, 2, 3], &[0, 1, 2, 3], None),
            (&[7, 26, 33], &[7, 26, 33], None),
            (&[0, COLOUR + 0xff_00_00], &[0, COLOUR + 0xff_00_00], None),
        ] {
            assert_eq!(seen(values, None), (names(classes), ignore), "{values:?}");
        }
        let value = |value| Some(Ignore::Value(value));
        assert_eq!(seen(&[0, 1, 255], Some(Ignore::Nothing)), (names(&[0, 1, 255]), None));
        assert_eq!(seen(&[0, 1, 2], value(0)), (names(&[1, 2]), Some(255)));
        assert_eq!(seen(&[0, 1, 2], value(2)), (names(&[0, 1]), Some(2)));
        assert_eq!(seen(&[0, 255], value(255)), (names(&[0]), Some(255)));
        let all = |range: std::ops::RangeInclusive<u32>| Classes::seen(&Tally::count(range), None);
        assert_eq!(all(0..=254).map(|one| (one.names.len(), one.ignore)).unwrap(), (255, None));
        assert_eq!(all(0..=255).map(|one| (one.names.len(), one.ignore)).unwrap(), (255, Some(255)));
        assert!(all(0..=256).is_err() && all(1000..=2000).is_err());
    }

    #[test]
    fn what_was_taken_for_what_is_one_line() {
        let tally = Tally::count([0, 0, 0, 255].into_iter());
        let line = Classes::seen(&tally, None).unwrap().described(&tally);
        assert_eq!(line, "2 classes by their values in the label images: 0 75.00 %, 255 25.00 %; no pixel is ignored");
        let tally = Tally::count([0, 7, 9, 9].into_iter());
        let table = Table::parse("id\tname\n0\tvoid\n7\troad\n9\tcar\n11\tsign").unwrap();
        assert_eq!(
            table.classes(None, false).unwrap().described(&tally),
            "3 classes by their values in the label images: road (7) 25.00 %, car (9) 50.00 %, sign (11) nowhere; \
             0 is ignored (25.00 %)"
        );
    }
}
