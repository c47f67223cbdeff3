//! Test images with their labels and what was predicted.

use super::{
    Report,
    page::{card, section},
    png,
    text::escape,
};
use crate::task::segnet;

/// The section.
pub fn section_of(report: &Report<'_>) -> String {
    let data = report.data;
    let (test, pixels) = (&data.test, data.test.pixels());
    let size = [test.height, test.width];
    // What has no class is black, whatever its number.
    let mut palette = vec![[0; 3]; 256];
    for (entry, colour) in palette.iter_mut().zip(&data.colours) {
        *entry = *colour;
    }
    if let Some(ignore) = data.ignore {
        palette[usize::from(ignore)] = [0; 3];
    }
    let picture = |address: Option<String>, name: &str| {
        let name = escape(name);
        address.map_or_else(String::new, |address| card(&name, &format!("<img src=\"{address}\" alt=\"{name}\">")))
    };
    let mut content = String::new();
    for (i, image) in segnet::samples(test).enumerate() {
        let all = image * pixels..(image + 1) * pixels;
        content += "<div class=\"sample\">";
        content +=
            &picture(test.images.get(all.start * 3..all.end * 3).and_then(|image| png::colours(image, size)), "image");
        content += &picture(test.labels.get(all).and_then(|labels| png::classes(labels, size, &palette)), "truth");
        for method in &report.methods {
            let run = report.of(method).find(|run| !run.samples.is_empty());
            let classes = run.and_then(|run| run.samples.get(i * pixels..(i + 1) * pixels));
            content += &picture(classes.and_then(|classes| png::classes(classes, size, &palette)), method);
        }
        content += "</div>\n";
    }
    let named = data.classes.iter().zip(&data.colours).zip(0u8..);
    let named = named.filter(|(_, class)| data.ignore != Some(*class));
    let classes: String = named
        .map(|((name, [r, g, b]), _)| format!("<li><i style=\"background:rgb({r},{g},{b})\"></i>{}</li>", escape(name)))
        .collect();
    let lead = "Test images, their labels, and what the first seed of each method makes of them. Black has no label.";
    section("samples", "Sample images", lead, &format!("<ul class=\"legend\">{classes}</ul>\n{content}"))
}
