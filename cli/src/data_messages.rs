//! Messages about data in the words of the program. Those of `gradscale-data` name its own options and types, in
//! backticks, because other programs read data with it too.

use std::borrow::Cow;

/// Names in messages of `gradscale-data`, and what they are called here.
pub(crate) const OPTIONS: [(&str, &str); 12] = [
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
    use super::with_program_options;
    use gradscale_data::{DataOptions, IMAGES};

    #[test]
    fn messages_about_data_name_options_of_the_program() {
        let options = DataOptions { crop: Some(8), ..DataOptions::default() };
        let error = options.refuse("text", IMAGES).expect_err("text cannot be cropped").to_string();
        assert_eq!(error, "`crop`: does not apply to text");
        assert_eq!(with_program_options(&error), "--crop: does not apply to text");
        assert_eq!(with_program_options("a file of `a` kind"), "a file of `a` kind");
    }
}
