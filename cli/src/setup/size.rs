//! `--size`: of a network, of images, or of both.

use crate::data::Size;
use gradscale_data::as_text;
use std::{fmt, str::FromStr};

/// Size of a network: small or that of its paper.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NetworkSize {
    /// Network for small images, with `--width` channels.
    Small,
    /// Network as its paper has it.
    Paper,
}

/// Sizes as `--size` takes them: `small`, `paper`, `240x320`, or one of the first with the last: `paper,240x320`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sizes {
    /// Size of the network, if it is given.
    pub network: Option<NetworkSize>,
    /// Size of the images, if it is given.
    pub images: Option<Size>,
}

impl FromStr for Sizes {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || "must be small or paper, or rows and columns from 1 to 16384, as 240x320, or paper,240x320";
        let mut sizes = Self::default();
        for part in text.split(',').map(str::trim) {
            let again = match part {
                "small" => sizes.network.replace(NetworkSize::Small).is_some(),
                "paper" => sizes.network.replace(NetworkSize::Paper).is_some(),
                images => sizes.images.replace(images.parse().map_err(|_| wrong())?).is_some(),
            };
            if again {
                return Err(wrong().to_owned());
            }
        }
        Ok(sizes)
    }
}

impl fmt::Display for Sizes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.network {
            None => {}
            Some(NetworkSize::Small) => f.write_str("small")?,
            Some(NetworkSize::Paper) => f.write_str("paper")?,
        }
        match self.images {
            None => Ok(()),
            Some(images) if self.network.is_none() => write!(f, "{images}"),
            Some(images) => write!(f, ",{images}"),
        }
    }
}

as_text!(Sizes);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn as_people_write_them() {
        let images = Some(Size([240, 320]));
        for (text, network, images) in [
            ("small", Some(NetworkSize::Small), None),
            ("paper", Some(NetworkSize::Paper), None),
            ("240x320", None, images),
            ("paper,240x320", Some(NetworkSize::Paper), images),
        ] {
            let sizes = Sizes { network, images };
            assert_eq!((text.parse(), sizes.to_string().as_str()), (Ok(sizes), text));
        }
        for wrong in ["", "large", "small,paper", "paper,paper", "1x2,3x4", "240", "0x3"] {
            assert!(wrong.parse::<Sizes>().is_err(), "{wrong}");
        }
    }
}
