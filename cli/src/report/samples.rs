//! Test images with their labels and what was predicted.

use super::{
    Report,
    page::{card, section},
    png,
    text::escape,
};
use crate::{
    data::{Labelled, Segmentation},
    tasks::{Data, classify, samples, segnet},
};

/// The section.
pub fn section_of(report: &Report<'_>) -> String {
    let (lead, content) = match report.data {
        Data::Segmentation(data) => {
            let lead =
                "Test images, their labels, and what the first seed of each method makes of them. Black has no label.";
            (lead, pixels(report, data))
        }
        // Rows of numbers have nothing to show.
        Data::Labelled(data) if !data.columns.is_empty() => return String::new(),
        Data::Labelled(data) => (
            "Test images, their classes, and what the first seed of each method takes them for.",
            labelled(report, data),
        ),
    };
    section("samples", "Sample images", lead, &content)
}

/// What the first seed of a method that has predicted something predicted.
fn predicted<'a>(report: &'a Report<'_>, method: &str) -> Option<&'a [u8]> {
    report.of(method).map(|run| &run.samples[..]).find(|samples| !samples.is_empty())
}

fn picture(address: Option<String>, caption: &str, name: &str) -> String {
    let name = escape(name);
    address.map_or_else(String::new, |address| card(caption, &format!("<img src=\"{address}\" alt=\"{name}\">")))
}

fn pixels(report: &Report<'_>, data: &Segmentation) -> String {
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
    let named = data.classes.iter().zip(&data.colours).zip(0u8..);
    let named = named.filter(|(_, class)| data.ignore != Some(*class));
    let classes: String = named
        .map(|((name, [r, g, b]), _)| format!("<li><i style=\"background:rgb({r},{g},{b})\"></i>{}</li>", escape(name)))
        .collect();
    let mut content = format!("<ul class=\"legend\">{classes}</ul>\n");
    let plain = |address, name: &str| picture(address, &escape(name), name);
    for (i, image) in samples(test.count, segnet::SHOWN).enumerate() {
        content += "<div class=\"sample\">";
        content +=
            &plain(test.images.get(image, 3 * pixels).ok().and_then(|image| png::colours(&image, size)), "image");
        content += &plain(
            test.labels.get(image, pixels).ok().and_then(|labels| png::classes(&labels, size, &palette)),
            "truth",
        );
        for method in &report.methods {
            let classes = predicted(report, method).and_then(|samples| samples.get(i * pixels..(i + 1) * pixels));
            content += &plain(classes.and_then(|classes| png::classes(classes, size, &palette)), method);
        }
        content += "</div>\n";
    }
    content
}

fn labelled(report: &Report<'_>, data: &Labelled) -> String {
    let test = &data.test;
    let name = |class: u8| data.classes.get(usize::from(class)).map_or("?", String::as_str);
    let mut content = "<div class=\"sample\">".to_owned();
    for (i, image) in samples(test.count, classify::SHOWN).enumerate() {
        let Ok(values) = test.image(image) else { continue };
        let pixels: Vec<u8> = match test.channels {
            3 => values.into_owned(),
            channels => values.chunks_exact(channels.max(1)).flat_map(|pixel| [pixel[0]; 3]).collect(),
        };
        let truth = test.labels[image];
        let mut caption = format!("<b>{}</b>", escape(name(truth)));
        for (method, class) in report.coloured() {
            if let Some(&taken) = predicted(report, method).and_then(|samples| samples.get(i)) {
                let (mark, method) = (if taken == truth { "" } else { " ✗" }, escape(method));
                caption +=
                    &format!("<br><span class=\"{class}\"><i></i>{method}: {}{mark}</span>", escape(name(taken)));
            }
        }
        content += &picture(png::colours(&pixels, [test.height, test.width]), &caption, name(truth));
    }
    content + "</div>\n"
}
