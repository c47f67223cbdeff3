//! Sources of samples in the user's files, by which messages name a sample.

use std::path::PathBuf;

/// Sources of the samples of a set that is kept in memory.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Sources {
    /// Generated samples, or packed ones without names.
    #[default]
    Unnamed,
    /// A file for each sample.
    Files(Vec<PathBuf>),
    /// A line of a file for each sample.
    Lines {
        /// Path of the table.
        path: PathBuf,
        /// Number of each sample's line, from 1.
        lines: Vec<usize>,
    },
}

impl Sources {
    /// Describes the source of a sample: its file, and its line there. `None` if there is none.
    #[must_use]
    pub fn get(&self, index: usize) -> Option<String> {
        match self {
            Self::Unnamed => None,
            Self::Files(paths) => paths.get(index).map(|path| path.display().to_string()),
            Self::Lines { path, lines } => lines.get(index).map(|line| format!("{}, line {line}", path.display())),
        }
    }

    /// Returns the sources of the chosen samples.
    #[must_use]
    pub fn pick(&self, samples: &[usize]) -> Self {
        match self {
            Self::Unnamed => Self::Unnamed,
            Self::Files(paths) => Self::Files(samples.iter().filter_map(|&i| paths.get(i).cloned()).collect()),
            Self::Lines { path, lines } => {
                let lines = samples.iter().filter_map(|&i| lines.get(i).copied()).collect();
                Self::Lines { path: path.clone(), lines }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chosen_samples_keep_their_sources() {
        let files = Sources::Files(["a.png", "b.png", "c.png"].map(PathBuf::from).to_vec());
        assert_eq!(files.pick(&[2, 0]).get(0).as_deref(), Some("c.png"));
        let lines = Sources::Lines { path: "t.csv".into(), lines: vec![2, 3, 5] }.pick(&[1, 2]);
        assert_eq!([0, 1, 2].map(|i| lines.get(i)), [Some("t.csv, line 3".into()), Some("t.csv, line 5".into()), None]);
        assert_eq!(Sources::Unnamed.pick(&[0]).get(0), None);
    }
}
