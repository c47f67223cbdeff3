//! Text for HTML and SVG.

/// Escapes text for HTML, so that it is valid between tags and in an attribute with double quotes.
pub fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            '\'' => escaped.push_str("&#39;"),
            // Not allowed in a page, not even as references.
            c if c.is_control() => escaped.push('\u{FFFD}'),
            c => escaped.push(c),
        }
    }
    escaped
}

/// Formats a power with its exponent in raised digits: 2⁻²⁵.
pub fn power(base: u32, exponent: f64) -> String {
    let raised = |c: char| match c {
        '-' => '⁻',
        '.' => '·',
        '1' => '¹',
        '2' => '²',
        '3' => '³',
        c => c.to_digit(10).and_then(|digit| char::from_u32(0x2070 + digit)).unwrap_or(c),
    };
    let rounded = if exponent.fract() == 0.0 { format!("{exponent:.0}") } else { format!("{exponent:.1}") };
    format!("{base}{}", rounded.replace("-0", "0").chars().map(raised).collect::<String>())
}

/// Formats a share in percent, with as many digits as necessary.
pub fn percent(share: f64) -> String {
    let percent = 100.0 * share;
    match percent {
        0.0 => "0 %".to_owned(),
        p if p < 0.001 => format!("{} %", power(10, p.log10().floor())),
        p if p < 0.01 => format!("{p:.3} %"),
        p if p < 1.0 => format!("{p:.2} %"),
        // 99.6 is not 100.
        p if p < 10.0 || (99.0..99.95).contains(&p) => format!("{p:.1} %"),
        p => format!("{p:.0} %"),
    }
}

/// Formats a fraction in percent, with as few digits as possible.
pub fn brief(share: f64) -> String {
    match 100.0 * share {
        0.0 => "0".to_owned(),
        p if p < 0.1 => "<0.1 %".to_owned(),
        p if p < 9.95 => format!("{p:.1} %"),
        p => format!("{p:.0} %"),
    }
}

/// Shortens a name to `longest` characters; keeps beginning and end, which tell more than the middle.
pub fn fitted(name: &str, longest: usize) -> String {
    let count = name.chars().count();
    if count <= longest {
        return name.to_owned();
    }
    let head = longest / 2;
    name.chars().take(head).chain(['…']).chain(name.chars().skip(count + head + 1 - longest)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_people_read() {
        assert_eq!(escape("<a href='x' b=\"&\">\u{0}"), "&lt;a href=&#39;x&#39; b=&quot;&amp;&quot;&gt;\u{FFFD}");
        assert_eq!((power(2, -25.0), power(10, 3.0), power(2, 6.5)), ("2⁻²⁵".into(), "10³".into(), "2⁶·⁵".into()));
        let shares = [0.0, 3e-8, 0.00002, 0.005, 0.05, 0.431, 0.996, 1.0];
        assert_eq!(shares.map(percent), ["0 %", "10⁻⁶ %", "0.002 %", "0.50 %", "5.0 %", "43 %", "99.6 %", "100 %"]);
        assert_eq!([0.0, 1e-9, 0.05, 0.996].map(brief), ["0", "<0.1 %", "5.0 %", "100 %"]);
        assert_eq!((fitted("abcdefgh", 8), fitted("abcdefghi", 8)), ("abcdefgh".into(), "abcd…ghi".into()));
    }
}
