//! The table of classes, `classes.tsv`.

use super::{Cause, DataError, split::Loaded};
use std::{collections::BTreeMap, fs, io, path::Path};

/// Names, colours and the ignored label.
#[derive(Debug, PartialEq, Eq)]
pub struct Classes {
    /// Names; ids are positions.
    pub names: Vec<String>,
    /// A colour of each, R G B.
    pub colours: Vec<[u8; 3]>,
    /// The label that counts for nothing.
    pub ignore: Option<u8>,
}

/// Names of the class that is none.
const IGNORED: [&str; 4] = ["unlabelled", "unlabeled", "void", "ignore"];

impl Classes {
    /// Of a directory: its table, or what its labels show.
    pub(super) fn of(dir: &Path, splits: [&Loaded; 2]) -> Result<Self, DataError> {
        let path = dir.join("classes.tsv");
        match fs::read_to_string(&path) {
            Ok(text) => Self::parse(&text).map_err(|(line, reason)| Cause::Table { line, reason }.at(path)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Self::seen(splits)),
            Err(error) => Err(Cause::Io(error).at(path)),
        }
    }

    /// 0 to the largest label; 255 is the ignored one if it occurs.
    fn seen(splits: [&Loaded; 2]) -> Self {
        let mut occurs = [false; 256];
        for label in splits.iter().flat_map(|loaded| &loaded.split.labels) {
            occurs[usize::from(*label)] = true;
        }
        let ids = 0..=(0..255).rev().find(|&id| occurs[usize::from(id)]).unwrap_or(0);
        Self {
            names: ids.clone().map(|id| id.to_string()).collect(),
            colours: ids.map(colour).collect(),
            ignore: occurs[255].then_some(255),
        }
    }

    /// A table.
    ///
    /// # Errors
    /// The line that is wrong, from 1, and why.
    pub fn parse(text: &str) -> Result<Self, (usize, String)> {
        let mut lines = text.lines().enumerate();
        let head: Vec<_> = lines.next().map_or_else(Vec::new, |(_, line)| line.split('\t').collect());
        let column = |name: &str| head.iter().position(|&word| word == name);
        let (Some(id), Some(name)) = (column("id"), column("name")) else {
            return Err((1, "expected the words id, name, …, separated by tabs".into()));
        };
        let colour_columns = ["r", "g", "b"].map(column);

        let (mut named, mut ignore, mut last) = (BTreeMap::new(), None, 1);
        for (number, line) in lines.filter(|(_, line)| !line.trim().is_empty()) {
            last = number + 1;
            let words: Vec<_> = line.split('\t').collect();
            let word = |column: usize| words.get(column).copied().unwrap_or("");
            let byte = |column: usize| {
                let wrong = |_| (last, format!("{:?} for {}, expected a number 0…255", word(column), head[column]));
                word(column).parse::<u8>().map_err(wrong)
            };
            let (id, name) = (byte(id)?, word(name));
            let colour = match colour_columns {
                [Some(r), Some(g), Some(b)] => [byte(r)?, byte(g)?, byte(b)?],
                _ => colour(id),
            };
            if IGNORED.contains(&name.to_lowercase().as_str()) && ignore.replace(id).is_some() {
                return Err((last, format!("{name:?} is a second class to ignore")));
            }
            if named.insert(id, (name.to_owned(), colour)).is_some() {
                return Err((last, format!("id {id} is there twice")));
            }
        }

        // The ignored label may lie beyond the classes; then it is none of them.
        if ignore == named.keys().next_back().copied() {
            ignore.map(|id| named.remove(&id));
        }
        if named.is_empty() {
            return Err((last, "no classes".into()));
        }
        if let Some(gap) = (0..).zip(named.keys()).find(|(expected, id)| expected != *id) {
            return Err((last, format!("no class has id {}", gap.0)));
        }
        let (names, colours) = named.into_values().unzip();
        Ok(Self { names, colours, ignore })
    }
}

/// A colour for a class that has none: bits 0, 3, 6 of the id count for red, 1, 4, 7 for green, 2, 5 for blue,
/// the lowest most, so that small ids are far apart. (The convention of PASCAL VOC.)
fn colour(id: u8) -> [u8; 3] {
    [0, 1, 2].map(|channel| {
        (0..3)
            .filter(|bit| id.checked_shr(channel + 3 * bit).is_some_and(|id| id & 1 == 1))
            .map(|bit| 0x80 >> bit)
            .sum()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(text: &str) -> (usize, String) {
        Classes::parse(text).unwrap_err()
    }

    #[test]
    fn table_of_classes() {
        let classes = Classes::parse("id\tname\tr\tg\tb\n1\tRoad\t4\t5\t6\tmore\n0\tSky\t1\t2\t3\n2\tVOID\t0\t0\t0\n");
        let classes = classes.unwrap();
        assert_eq!(classes.names, ["Sky", "Road"]);
        assert_eq!(classes.colours, [[1, 2, 3], [4, 5, 6]]);
        assert_eq!(classes.ignore, Some(2));
        // A far ignored label; one that comes first keeps its place.
        assert_eq!(Classes::parse("name\tid\nSky\t0\nUnlabelled\t255").unwrap().ignore, Some(255));
        let first = Classes::parse("id\tname\n0\tignore\n1\tSky").unwrap();
        assert_eq!((first.names.len(), first.ignore), (2, Some(0)));
        // Without colours, those of PASCAL VOC.
        assert_eq!(first.colours, [[0, 0, 0], [128, 0, 0]]);
        assert_eq!([colour(7), colour(20), colour(255)], [[128, 128, 128], [0, 64, 128], [224, 224, 192]]);
    }

    #[test]
    fn tables_that_are_wrong() {
        assert_eq!(refused("").0, 1);
        assert_eq!(refused("id,name\n").0, 1);
        assert_eq!(refused("id\tname\n").1, "no classes");
        assert_eq!(refused("id\tname\n0\tvoid").1, "no classes");
        assert_eq!(refused("id\tname\n0\ta\n256\tb"), (3, "\"256\" for id, expected a number 0…255".into()));
        assert_eq!(refused("id\tname\n0\ta\n\n0\tb"), (4, "id 0 is there twice".into()));
        assert_eq!(refused("id\tname\n0\ta\n2\tb").1, "no class has id 1");
        assert_eq!(refused("id\tname\n0\tvoid\n1\tIgnore").0, 3);
        assert_eq!(refused("r\tg\tb\tid\tname\n1\t2\tx\t0\ta").0, 2);
    }
}
