//! No room of the program imports one that imports it: each can be read with only those below it in mind.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::Path,
};

type Imports = BTreeMap<String, BTreeSet<String>>;

/// The paths of a use tree: of `a::{b, c::d}` these are `a::b` and `a::c::d`.
fn paths(tree: &str) -> Vec<String> {
    let Some((head, rest)) = tree.split_once('{') else { return vec![tree.trim().to_owned()] };
    let inner = rest.rsplit_once('}').expect("a closing brace").0;
    let mut depth = 0;
    let parts = inner.split(|c| {
        depth += i32::from(c == '{') - i32::from(c == '}');
        c == ',' && depth == 0
    });
    let parts = parts.filter(|part| !part.trim().is_empty());
    parts.flat_map(paths).map(|path| format!("{}{path}", head.trim())).collect()
}

/// Returns the module of a path: a file or folder next to `lib.rs`; each command is one.
fn room(path: &str) -> String {
    let mut parts = path.split("::");
    match (parts.next().unwrap_or_default(), parts.next()) {
        ("Failure", _) => "failure".to_owned(),
        ("commands", Some(command)) => format!("commands::{command}"),
        (room, _) => room.to_owned(),
    }
}

/// Collects the imports of all files of a directory, by module.
fn read(directory: &Path, module: &str, imports: &mut Imports) {
    for entry in fs::read_dir(directory).expect("a directory") {
        let path = entry.expect("an entry").path();
        let name = path.file_stem().expect("a name").to_str().expect("text").to_owned();
        let module = if module.is_empty() { name.clone() } else { format!("{module}::{name}") };
        if path.is_dir() {
            read(&path, &module, imports);
        } else if path.extension().is_some_and(|end| end == "rs") && !["lib", "main", "mod"].contains(&&*name) {
            file(&path, &module, imports);
        } else if name == "mod" {
            file(&path, module.strip_suffix("::mod").expect("a folder"), imports);
        }
    }
}

fn file(path: &Path, module: &str, imports: &mut Imports) {
    let text = fs::read_to_string(path).expect("text");
    let code: String = text
        .lines()
        .filter(|line| !line.trim_start().starts_with("//"))
        .fold(String::new(), |all, line| all + line + "\n");
    let mut found = BTreeSet::new();
    for (at, _) in code.match_indices("crate::") {
        let rest = &code[at + "crate::".len()..];
        let end = match code[..at].ends_with("use ") {
            true => rest.find(';'),
            false => rest.find(|c: char| !c.is_alphanumeric() && !"_:".contains(c)),
        };
        found.extend(paths(&rest[..end.expect("an end")]).iter().map(|path| room(path)));
    }
    let own = room(module);
    found.remove(&own);
    // A crate of its own, which imports nothing of the program.
    found.remove("data");
    imports.entry(own).or_default().extend(found);
}

/// Returns the modules that remain after repeatedly removing those without imports: cycles, and modules that import
/// them.
fn circles(mut imports: Imports) -> Imports {
    loop {
        let free: Vec<String> = imports.iter().filter(|(_, of)| of.is_empty()).map(|(room, _)| room.clone()).collect();
        if free.is_empty() {
            return imports;
        }
        for room in free {
            imports.remove(&room);
            for of in imports.values_mut() {
                of.remove(&room);
            }
        }
    }
}

#[test]
fn no_room_imports_one_that_imports_it() {
    assert_eq!(paths("a::{b, c::{d, e}, self}"), ["a::b", "a::c::d", "a::c::e", "a::self"]);
    let mut imports = Imports::new();
    read(&Path::new(env!("CARGO_MANIFEST_DIR")).join("src"), "", &mut imports);
    for (room, imported) in [("args", "commands::train"), ("commands::train", "record"), ("report", "tasks")] {
        assert!(imports[room].contains(imported), "{room}: {:?}", imports[room]);
    }
    let mut wrong = imports.clone();
    wrong.entry("tasks".to_owned()).or_default().insert("report".to_owned());
    assert!(circles(wrong).contains_key("record"), "a circle is not found");
    let left = circles(imports);
    assert!(left.is_empty(), "{left:#?}");
}
