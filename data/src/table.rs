//! The table of classes, `classes.tsv`.

use super::{
    Cause, DataError, Ignore,
    classes::{Classes, IGNORED, Values, chosen, colour, colour_value, coloured},
    lists::read_if_present,
    tally::Tally,
};
use std::{collections::BTreeMap, path::Path};

/// Name of the table of classes.
pub(super) const TABLE: &str = "classes.tsv";

/// Parsed line of `classes.tsv`: a class's name and colour.
#[derive(Clone, Debug)]
struct Row {
    name: String,
    colour: [u8; 3],
}

/// Parsed table of classes, by label value.
#[derive(Debug)]
pub(super) struct Table {
    rows: BTreeMap<u32, Row>,
    /// Label value of the row that is named as the ignored class.
    void: Option<u32>,
    colours: bool,
    /// Line number of the table's last line, from 1.
    last: usize,
}

impl Table {
    /// Parses a table of classes: a header, then lines `id name r g b …`.
    ///
    /// # Errors
    /// The line that is wrong, from 1, and why.
    pub fn parse(text: &str) -> Result<Self, (usize, String)> {
        let mut lines = text.lines().enumerate();
        let head: Vec<_> = lines.next().map_or_else(Vec::new, |(_, line)| line.split('\t').collect());
        let column = |name: &str| head.iter().position(|&word| word == name);
        let (Some(id), Some(name)) = (column("id"), column("name")) else {
            return Err((1, "expected the header id, name, …, separated by tabs".into()));
        };
        let colour_columns = ["r", "g", "b"].map(column);
        let mut table = Self { rows: BTreeMap::new(), void: None, colours: false, last: 1 };
        for (number, line) in lines.filter(|(_, line)| !line.trim().is_empty()) {
            let last = number + 1;
            table.last = last;
            let words: Vec<_> = line.split('\t').collect();
            let word = |column: usize| words.get(column).copied().unwrap_or("");
            let wrong = |column: usize, most| {
                (last, format!("{:?} for {}, expected a number 0…{most}", word(column), head[column]))
            };
            let byte = |column: usize| word(column).parse::<u8>().map_err(|_| wrong(column, 255));
            let number = word(id).parse::<u16>().map_err(|_| wrong(id, 65535))?;
            let (id, name) = (u32::from(number), word(name));
            let own = match colour_columns {
                [Some(r), Some(g), Some(b)] => Some([byte(r)?, byte(g)?, byte(b)?]),
                _ => None,
            };
            table.colours = own.is_some();
            if IGNORED.contains(&name.to_lowercase().as_str()) && table.void.replace(id).is_some() {
                return Err((last, format!("{name:?} is a second class to ignore; keep one")));
            }
            let row = Row { name: name.to_owned(), colour: own.unwrap_or_else(|| colour(number.to_le_bytes()[0])) };
            if table.rows.insert(id, row).is_some() {
                return Err((last, format!("id {id} is listed twice")));
            }
        }
        Ok(table)
    }

    /// Returns the classes for label images of numbers or of colours.
    pub fn classes(self, ignore: Option<Ignore>, coloured: bool) -> Result<Classes, (usize, String)> {
        let Self { rows, void, colours, last } = self;
        if coloured && !colours {
            return Err((last, "the label images are coloured, but the table has no columns r, g, b".into()));
        }
        let ignored = chosen(ignore, void);
        let mut named = rows.clone();
        // The ignored label may be after the last class; then it is no class.
        if ignored.is_some() && ignored == named.keys().next_back().copied() {
            named.pop_last();
        }
        let places = (0..).zip(named.keys()).all(|(place, id)| place == *id) && ignored.is_none_or(|id| id < 256);
        if !places {
            ignored.and_then(|id| named.remove(&id));
        }
        if named.is_empty() {
            return Err((last, "no classes".into()));
        }
        let ignored = ignored.map(|id| (id, if places { id } else { 255 }));
        let mut classes = Classes::new(named.iter().map(|(id, row)| (*id, row.name.clone(), row.colour)), ignored)
            .ok_or_else(|| (last, format!("{} classes, more than the maximum of 255", named.len())))?;
        if coloured {
            let by_colour =
                classes.values.0.iter().filter_map(|(id, class)| Some((colour_value(rows.get(id)?.colour), *class)));
            let by_colour = Values(by_colour.collect());
            if by_colour.0.len() < classes.values.0.len() {
                return Err((last, "the label images are coloured, but two rows have the same colour".into()));
            }
            classes.values = by_colour;
        }
        Ok(classes)
    }
}

impl Classes {
    /// Reads the classes of a directory from `classes.tsv`, or infers them from the labels.
    pub(super) fn read(dir: &Path, tally: &Tally, ignore: Option<Ignore>) -> Result<Self, DataError> {
        let path = dir.join(TABLE);
        match read_if_present(&path)? {
            Some(text) => {
                let table = Table::parse(&text).and_then(|table| table.classes(ignore, coloured(tally)));
                table.map_err(|(line, reason)| Cause::Table { line, reason }.at(path))
            }
            None => Self::seen(tally, ignore).map_err(|cause| cause.at(dir)),
        }
    }

    /// Parses a table for label files of numbers, by the names of its rows.
    ///
    /// # Errors
    /// The number of the wrong line, from 1, and the reason.
    pub fn parse(text: &str) -> Result<Self, (usize, String)> {
        Table::parse(text)?.classes(None, false)
    }
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
        assert_eq!(refused("id\tname\n0\ta\n65536\tb"), (3, "\"65536\" for id, expected a number 0…65535".into()));
        assert_eq!(refused("id\tname\n0\ta\n\n0\tb"), (4, "id 0 is listed twice".into()));
        assert_eq!(refused("id\tname\n0\tvoid\n1\tIgnore").0, 3);
        assert_eq!(refused("r\tg\tb\tid\tname\n1\t2\tx\t0\ta").0, 2);
    }
    #[test]
    fn any_values_have_their_classes() {
        let ids = |classes: &Classes| classes.values.0.clone().into_iter().collect::<Vec<_>>();
        let two = Classes::parse("id\tname\n0\tground\n255\troad").unwrap();
        assert_eq!((ids(&two), two.ignore, two.names.len()), (vec![(0, 0), (255, 1)], None, 2));
        let gaps = Classes::parse("id\tname\n7\troad\n3\tvoid\n26\tcar").unwrap();
        assert_eq!((ids(&gaps), gaps.ignore), (vec![(3, 255), (7, 0), (26, 1)], Some(255)));
        assert_eq!(gaps.names, ["road", "car"]);
        let table = || Table::parse("id\tname\tr\tg\tb\n0\ta\t9\t9\t9\n1\tvoid\t1\t2\t3\n").unwrap();
        assert_eq!(table().classes(None, true).unwrap().values.0, [(9, 0), (0x01_01_02_03, 1)].into());
        assert_eq!(table().classes(Some(Ignore::Nothing), false).unwrap().names.len(), 2);
        assert!(Table::parse("id\tname\n0\ta\n1\tb").unwrap().classes(None, true).is_err());
    }
}
