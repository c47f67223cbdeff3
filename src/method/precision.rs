//! Parser and formatter of precision options: level, operator lists and layers, which every method except `fp32`
//! accepts.

use super::{
    Layers, exceptions, listed,
    options::{Options, Text},
};
use crate::suggestion::suggestion;
use gradscale_core::{
    amp::{AmpPolicy, Level, List, Precision},
    ops::Op,
};

/// Separator between the names of layers or operators in a method's text.
const AND: char = '+';
const LISTS: [List; 4] = [List::Allow, List::Deny, List::Inside, List::Infer];
/// Options of a method's text for the precision of layers, with their precisions.
const PRECISIONS: [(&str, Precision); 2] = [("f32", Precision::Single), ("half", Precision::Half)];

/// Removes the precision options and returns the policy and the layers; the default is O1.
pub(super) fn parse(options: &mut Options<'_>) -> Result<(AmpPolicy, Layers), String> {
    let level = match options.take("amp") {
        None => Level::O1,
        Some(name) => {
            let found = Level::ALL.into_iter().find(|level| name.eq_ignore_ascii_case(&format!("{level:?}")));
            found.ok_or_else(|| format!("amp must be O0, O1, O2 or O3, not {name}"))?
        }
    };
    let mut amp = AmpPolicy::new(level);
    for list in LISTS {
        for name in options.take(&list.to_string()).into_iter().flat_map(|names| names.split(AND)) {
            let unknown = |_| {
                let similar = suggestion(name.trim(), Op::ALL.iter().map(|op| op.name()));
                format!("{list} takes operators, and {name} is none{similar}")
            };
            let op: Op = name.trim().parse().map_err(unknown)?;
            amp = listed(&amp, op, list).map_err(|error| error.to_string())?;
        }
    }
    let mut layers = Layers::none();
    for (option, precision) in PRECISIONS {
        for name in options.take(option).into_iter().flat_map(|names| names.split(AND)) {
            let name = decoded(name.trim()).ok_or_else(|| {
                format!(
                    "a % must be followed by two hexadecimal digits, not \
                as in {name}"
                )
            })?;
            if layers.iter().any(|(known, _)| known == name) {
                return Err(format!("layer {name} is given twice"));
            }
            layers.set(&name, precision);
        }
    }
    Ok((amp, layers))
}

/// Writes the precision options of a method's text that differ from the default.
pub(super) fn text(text: &mut Text, amp: &AmpPolicy, layers: &Layers) {
    text.unless(Level::O1, "amp", amp.level(), format_args!("{:?}", amp.level()));
    for list in LISTS {
        let on = exceptions(amp).filter(|(_, other)| *other == list).map(|(op, _)| op.name().to_owned());
        joined(text, &list.to_string(), on.collect());
    }
    for (option, precision) in PRECISIONS {
        let of = layers.iter().filter(|(_, other)| *other == precision).map(|(layer, _)| encoded(layer));
        joined(text, option, of.collect());
    }
}

fn joined(text: &mut Text, option: &str, names: Vec<String>) {
    if !names.is_empty() {
        text.push(option, names.join(&AND.to_string()));
    }
}

/// Encodes a layer's name. Characters with a meaning in a method's text are percent-encoded as in URLs: `%2C`.
fn encoded(name: &str) -> String {
    let means_else = |c: char| matches!(c, '%' | ',' | '=' | AND) || c.is_whitespace();
    let mut text = String::new();
    for c in name.chars() {
        if means_else(c) {
            c.encode_utf8(&mut [0; 4]).bytes().for_each(|byte| text.push_str(&format!("%{byte:02X}")));
        } else {
            text.push(c);
        }
    }
    text
}

/// Decodes a layer's name in a method's text; `None` for an invalid `%`.
fn decoded(text: &str) -> Option<String> {
    let mut parts = text.split('%');
    let mut bytes = parts.next()?.as_bytes().to_vec();
    for part in parts {
        let digits = part.get(..2).filter(|digits| digits.bytes().all(|digit| digit.is_ascii_hexdigit()))?;
        bytes.push(u8::from_str_radix(digits, 16).ok()?);
        bytes.extend_from_slice(&part.as_bytes()[2..]);
    }
    String::from_utf8(bytes).ok()
}
