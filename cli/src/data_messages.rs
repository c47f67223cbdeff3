//! Messages about data in the words of the program. Those of `gradscale-data` name its own options and types, in
//! backticks, because other programs read data with it too.

use std::borrow::Cow;

/// Names in messages of `gradscale-data`, and what they are called here.
const OPTIONS: [(&str, &str); 12] = [
    ("`Labelled`", "--task classify"),
    ("`Segmentation`", "--task segnet"),
    ("`crop`", "--crop"),
    ("`ignore`", "--ignore"),
    ("`label`", "--label"),
    ("`languages`", "--languages"),
    ("`memory`", "--memory"),
    ("`size`", "--size HxW"),
    ("`skip_broken`", "--skip-broken"),
    ("`tokens`", "--tokens"),
    ("`validation`", "--eval-every"),
    ("`window`", "--window"),
];

/// Returns a message of `gradscale-data` with the options of this program.
pub(crate) fn with_program_options(message: &str) -> Cow<'_, str> {
    OPTIONS.iter().fold(Cow::Borrowed(message), |message, (name, option)| {
        if message.contains(name) { Cow::Owned(message.replace(name, option)) } else { message }
    })
}

#[cfg(test)]
mod tests {
    use super::{OPTIONS, with_program_options};
    use crate::{args::Arguments, data::DataOptions};
    use clap::CommandFactory;
    use std::{collections::BTreeSet, fs, path::Path};

    /// Returns all names in backticks in the code of the data crate, without its comments.
    fn names(dir: &Path, found: &mut BTreeSet<String>) {
        for entry in fs::read_dir(dir).expect("the sources of gradscale-data") {
            let path = entry.expect("an entry").path();
            if path.is_dir() {
                names(&path, found);
            } else {
                let text = fs::read_to_string(&path).expect("a source");
                let code = text.lines().map(str::trim_start).filter(|line| !line.starts_with("//"));
                let quoted =
                    code.clone().flat_map(|line| line.split('`').skip(1).step_by(2).map(|name| format!("`{name}`")));
                found.extend(quoted);
                assert!(code.clone().all(|line| !line.contains("--")), "{} names options of a program", path.display());
            }
        }
    }

    #[test]
    fn every_name_in_messages_about_data_is_an_option_of_the_program() {
        let mut found = BTreeSet::new();
        names(&Path::new(env!("CARGO_MANIFEST_DIR")).join("../data/src"), &mut found);
        // A value, and not an option.
        assert!(found.remove("`none`"));
        assert_eq!(found, OPTIONS.map(|(name, _)| name.to_owned()).into());
        let train = Arguments::command().find_subcommand("train").expect("a command").clone();
        let known: BTreeSet<String> =
            train.get_arguments().filter_map(|one| one.get_long()).map(|long| format!("--{long}")).collect();
        for (_, option) in OPTIONS {
            assert!(known.contains(option.split(' ').next().expect("a word")), "{option}");
        }
    }

    #[test]
    fn messages_about_data_name_options_of_the_program() {
        let options = DataOptions { crop: Some(8), ..DataOptions::default() };
        let error = options.refuse("text", crate::data::IMAGES).expect_err("text cannot be cropped").to_string();
        assert_eq!(error, "`crop`: does not apply to text");
        assert_eq!(with_program_options(&error), "--crop: does not apply to text");
        assert_eq!(with_program_options("a file of `a` kind"), "a file of `a` kind");
    }
}
