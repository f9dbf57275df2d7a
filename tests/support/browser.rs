//! Chromium without a window.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use super::{run, which};

const DRAWN_WITHIN: Duration = Duration::from_secs(60);

/// The program, if there is one.
pub(crate) fn program() -> Option<PathBuf> {
    let names = ["chromium", "chromium-browser", "google-chrome"];
    names.into_iter().find_map(which)
}

/// A command with nothing of the user's own, and a window of this size.
pub(crate) fn browser(program: &Path, profile: &Path, (width, height): (u32, u32)) -> Command {
    let mut command = Command::new(program);
    command
        .args([
            "--headless=new",
            "--no-sandbox",
            "--disable-gpu",
            "--disable-dev-shm-usage",
            "--no-first-run",
            "--hide-scrollbars",
            "--virtual-time-budget=4000",
            "--no-proxy-server",
            "--disable-background-networking",
            "--disable-component-update",
            "--disable-sync",
        ])
        .arg(format!("--window-size={width},{height}"))
        .arg(format!("--user-data-dir={}", profile.display()))
        .env("HOME", profile)
        .stdin(Stdio::null());
    command
}

/// Folder of pictures for inspection: kept over test runs, not in the repository.
pub(crate) fn pictures() -> PathBuf {
    let target = Path::new(env!("CARGO_TARGET_TMPDIR")).join("screenshots");
    std::fs::create_dir_all(&target).expect("a folder");
    target
}

/// Takes a screenshot of a web page.
pub(crate) fn take(mut browser: Command, url: &str, picture: &Path) {
    browser.arg(format!("--screenshot={}", picture.display()));
    let (well, said) = run(browser.arg(url), DRAWN_WITHIN);
    let size = picture.metadata().map_or(0, |metadata| metadata.len());
    let shown = picture.display();
    assert!(well && size > 10_000, "{shown}: {size} bytes: {said}");
    println!("{shown}");
}
