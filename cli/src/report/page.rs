//! Frame of the page: head, summary, arguments, and elements of all sections.

use super::text::escape;
use crate::machine::Origin;
use serde_json::Value;

const STYLE: &str = include_str!("style.css");

/// Returns a complete HTML page with a title and sections.
pub fn page(title: &str, sections: &[String]) -> String {
    let title = escape(title);
    format!(
        "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <meta name=\"color-scheme\" content=\"light dark\">\n\
         <meta name=\"generator\" content=\"gradscale\">\n\
         <title>{title}</title>\n<style>\n{STYLE}</style>\n</head>\n<body>\n\
         <header><p class=\"brand\">gradscale</p><h1>{title}</h1></header>\n\
         <main>\n{}</main>\n</body>\n</html>\n",
        sections.concat()
    )
}

/// Returns an HTML section with its heading and a sentence about its content.
pub fn section(id: &str, heading: &str, lead: &str, content: &str) -> String {
    format!("<section id=\"{id}\">\n<h2>{heading}</h2>\n<p>{lead}</p>\n{content}</section>\n")
}

/// Returns an HTML figure with a caption; both arguments are HTML.
pub fn card(caption: &str, drawing: &str) -> String {
    format!("<figure><figcaption>{caption}</figcaption>{drawing}</figure>\n")
}

/// Returns HTML of drawings in rows, as many per row as fit; `class` is `cards` or `small`.
pub fn grid(class: &str, cards: &[String]) -> String {
    format!("<div class=\"{class}\">{}</div>\n", cards.concat())
}

/// Returns HTML that the reader can collapse: a summary and its content.
pub fn details(summary: &str, open: bool, content: &str) -> String {
    let open = if open { " open" } else { "" };
    format!("<details{open}><summary>{summary}</summary>\n{content}</details>\n")
}

/// Returns an HTML legend of names with colours; entries are CSS class and name.
pub fn legend<'a>(entries: impl IntoIterator<Item = (String, &'a str)>) -> String {
    let entry = |(class, name): (String, &str)| format!("<li class=\"{class}\"><i></i>{}</li>", escape(name));
    format!("<ul class=\"legend\">{}</ul>\n", entries.into_iter().map(entry).collect::<String>())
}

/// Returns the section with version, machine and arguments.
pub fn arguments(origin: &Origin, arguments: &Value) -> String {
    let entry = |name: &str, value: &str| format!("<dt>{}</dt><dd>{}</dd>", escape(name), escape(value));
    let mut list = [("version", origin.version), ("commit", origin.commit), ("machine", &origin.machine)]
        .map(|(name, value)| entry(name, value))
        .concat();
    if let Value::Object(arguments) = arguments {
        list.extend(arguments.iter().map(|(name, value)| entry(&name.replace('_', "-"), &words(value))));
    }
    section("arguments", "Arguments", "Everything that this result depends on.", &format!("<dl>{list}</dl>\n"))
}

fn words(value: &Value) -> String {
    match value {
        Value::Null => "–".to_owned(),
        Value::String(text) => text.clone(),
        Value::Array(values) if values.is_empty() => "–".to_owned(),
        Value::Array(values) => values.iter().map(words).collect::<Vec<_>>().join(", "),
        other => other.to_string(),
    }
}
