//! Cache files that are right, damaged, or cannot be written.

use super::*;

/// Folder that is removed at the end of a test.
struct Folder(PathBuf);

impl Folder {
    fn new(test: &str) -> Self {
        let folder = std::env::temp_dir().join(format!("gradscale-tile-cache-{test}-{}", std::process::id()));
        fs::remove_dir_all(&folder).ok();
        Self(folder)
    }

    fn names(&self) -> Vec<PathBuf> {
        fs::read_dir(&self.0).expect("a folder").map(|file| file.expect("a file").path()).collect()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        fs::remove_dir_all(&self.0).ok();
    }
}

#[test]
fn a_written_tile_is_read_for_the_same_adapter_only() {
    let folder = Folder::new("round");
    let cache = TileCache::new(&folder.0.join("deep"), "GPU, vulkan, driver 1");
    assert_eq!(cache.read(), None);
    for tile in ProductTile::ALL {
        cache.write(tile);
        assert_eq!(TileCache::new(&folder.0.join("deep"), "GPU, vulkan, driver 1").read(), Some(tile));
    }
    let other = TileCache::new(&folder.0.join("deep"), "GPU, vulkan, driver 2");
    assert_eq!(other.read(), None);
    // The name in the file counts, not only the number in the file's name.
    fs::copy(&cache.path, &other.path).expect("a file");
    assert_eq!(other.read(), None);
}

#[test]
fn a_damaged_file_is_none_and_can_be_replaced() {
    let folder = Folder::new("damaged");
    let cache = TileCache::new(&folder.0, "a GPU");
    cache.write(ProductTile::Rows128);
    let whole = fs::read(&cache.path).expect("a file");
    for end in 0..whole.len() {
        fs::write(&cache.path, &whole[..end]).expect("a file");
        assert_eq!(cache.read(), None, "{end} bytes");
    }
    for (i, mask) in (0..whole.len()).flat_map(|i| [1, 0x80].map(|mask| (i, mask))) {
        let mut changed = whole.clone();
        changed[i] ^= mask;
        fs::write(&cache.path, &changed).expect("a file");
        assert_eq!(cache.read(), None, "byte {i}");
    }
    fs::write(&cache.path, [&whole[..], &[b' '; 1 << 13]].concat()).expect("a file");
    assert_eq!(cache.read(), None, "too long");
    cache.write(ProductTile::Side64);
    assert_eq!(cache.read(), Some(ProductTile::Side64));
    assert_eq!(folder.names(), [cache.path]);
}

/// A file in the folder's place, and a folder in the file's place: they stop root, too.
#[test]
fn a_folder_that_cannot_be_written_is_no_error() {
    let folder = Folder::new("unwritable");
    fs::create_dir_all(&folder.0).expect("a folder");
    let file = folder.0.join("file");
    fs::write(&file, "text").expect("a file");
    let inside = TileCache::new(&file, "a GPU");
    inside.write(ProductTile::Side64);
    assert_eq!((inside.read(), fs::read_to_string(&file).ok().as_deref()), (None, Some("text")));
    let occupied = TileCache::new(&folder.0, "a GPU");
    fs::create_dir(&occupied.path).expect("a folder");
    occupied.write(ProductTile::Side64);
    assert_eq!((occupied.read(), folder.names().len()), (None, 2), "an unfinished file is left");
}

#[cfg(all(unix, not(target_os = "macos")))]
#[test]
fn the_user_s_folder_is_that_of_the_environment() {
    let folder = |variables: &[(&str, &str)]| {
        user_cache_folder(|name| variables.iter().find(|(other, _)| *other == name).map(|(_, value)| value.into()))
    };
    let (home, xdg) = (("HOME", "/home/one"), ("XDG_CACHE_HOME", "/caches"));
    assert_eq!(folder(&[home, xdg]), Some("/caches/gradscale".into()));
    assert_eq!(folder(&[home]), Some("/home/one/.cache/gradscale".into()));
    assert_eq!(folder(&[home, ("XDG_CACHE_HOME", "relative")]), Some("/home/one/.cache/gradscale".into()));
    assert_eq!(folder(&[("HOME", ""), ("LOCALAPPDATA", "/windows")]), None);
    assert_eq!(folder(&[]), None);
}
