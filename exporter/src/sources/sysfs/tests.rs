//! Files with wrong content, that vanish, come back and lead out of the root.

use super::*;

/// Writes files below a directory, for tests of samplers.
pub(crate) fn write(root: &Path, files: &[(&str, &str)]) {
    for (file, text) in files {
        let path = root.join(file);
        fs::create_dir_all(path.parent().expect("a parent")).expect("mkdir");
        fs::write(path, text).expect("write");
    }
}

/// Makes a link below a directory; its target need not exist.
pub(crate) fn link(root: &Path, name: &str, target: &str) {
    let path = root.join(name);
    fs::create_dir_all(path.parent().expect("a parent")).expect("mkdir");
    std::os::unix::fs::symlink(target, path).expect("link");
}

fn tree() -> (tempfile::TempDir, Dir) {
    let temp = tempfile::tempdir().expect("a temporary directory");
    let dir = Root::new(temp.path()).open().expect("the root");
    (temp, dir)
}

#[test]
fn what_a_file_says_is_typed() {
    let (temp, dir) = tree();
    let mut buffer = [0; 4096];
    for (content, expected) in [
        ("17\n", Ok(17)),
        ("18446744073709551615\r\n", Ok(u64::MAX)),
        ("17\n\0", Ok(17)),
        ("", Err(Miss::Unsupported)),
        ("N/A\n", Err(Miss::Unsupported)),
        ("N/A (no PMA)\n", Err(Miss::Unsupported)),
        ("many\n", Err(Miss::Unparsed)),
        ("-1\n", Err(Miss::Unparsed)),
        ("18446744073709551616\n", Err(Miss::Unparsed)),
    ] {
        fs::write(temp.path().join("x"), content).expect("write");
        assert_eq!(dir.file("x").count(&mut buffer), expected, "{content:?}");
    }
    fs::write(temp.path().join("x"), b"\xff\xfe").expect("write");
    assert_eq!(dir.file("x").count(&mut buffer), Err(Miss::Unparsed));
    assert_eq!(dir.file("nothing").count(&mut buffer), Err(Miss::Absent));
    fs::create_dir(temp.path().join("dir")).expect("mkdir");
    assert_eq!(dir.file("dir").count(&mut buffer), Err(Miss::Failed));
}

#[test]
fn a_kept_file_follows_changes_replacement_and_removal() {
    let (temp, dir) = tree();
    let path = temp.path().join("x");
    let mut buffer = [0; 4096];
    fs::write(&path, "1").expect("write");
    let mut file = dir.file("x");
    assert_eq!(file.count(&mut buffer), Ok(1));
    fs::write(&path, "2222").expect("write in place");
    assert_eq!(file.count(&mut buffer), Ok(2222));
    fs::write(temp.path().join("y"), "3").expect("write");
    fs::rename(temp.path().join("y"), &path).expect("replace");
    assert_eq!(file.count(&mut buffer), Ok(3));
    fs::remove_file(&path).expect("remove");
    assert_eq!(file.count(&mut buffer), Err(Miss::Absent));
    fs::write(&path, "4").expect("write");
    assert_eq!(file.count(&mut buffer), Ok(4));
}

#[test]
fn links_stay_inside_the_root() {
    let (temp, _) = tree();
    let root = temp.path().join("sys");
    fs::create_dir_all(root.join("devices/a")).expect("mkdir");
    fs::write(root.join("devices/a/x"), "5").expect("write");
    fs::write(temp.path().join("secret"), "6").expect("write");
    for (target, link) in [
        ("devices/a", "inside"),
        ("..", "outside"),
        ("../secret", "devices/a/file"),
    ] {
        std::os::unix::fs::symlink(target, root.join(link)).expect("link");
    }
    let root = Root::new(&root).open().expect("the root");
    let mut buffer = [0; 4096];
    let inside = root.dir("inside").expect("a link inside the root");
    assert_eq!(inside.components(), ["devices", "a"]);
    assert_eq!(inside.file("x").count(&mut buffer), Ok(5));
    assert_eq!(root.dir("outside").err(), Some(Miss::Denied));
    assert_eq!(inside.file("file").count(&mut buffer), Err(Miss::Failed));
}

/// The loopback interface has no speed: a real kernel reports `EINVAL`.
#[test]
fn a_file_that_said_einval_is_never_opened_again() {
    let Ok(dir) = Root::new(Path::new("/sys"))
        .open()
        .and_then(|sys| sys.dir("class/net/lo"))
    else {
        eprintln!("SKIPPED: a_file_that_said_einval_is_never_opened_again: no /sys/class/net/lo");
        return;
    };
    let mut buffer = [0; 4096];
    let mut file = dir.file("speed");
    assert_eq!(file.count(&mut buffer), Err(Miss::Unsupported));
    assert!(matches!(file.kept, Kept::Never));
    // Had it been opened again, it would now be found missing.
    file.path = PathBuf::from("/nowhere");
    assert_eq!(file.count(&mut buffer), Err(Miss::Unsupported));
}
