//! Writes the dashboards, their Kubernetes list and their documentation into the repository.

use std::path::Path;

fn main() -> std::io::Result<()> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    for (path, text) in railscope_dashboards::files() {
        let file = root.join(&path);
        let is_current = std::fs::read_to_string(&file).is_ok_and(|old| old == text);
        if !is_current {
            std::fs::write(file, text)?;
            println!("{path}");
        }
    }
    Ok(())
}
