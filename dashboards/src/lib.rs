//! Grafana dashboards of Railscope: a typed source, one place for each panel, and the files generated from it.

mod board;
mod boards;
mod docs;
mod kustomize;
mod layout;
mod link;
mod panel;
mod query;
mod render;
mod routes;
mod table;
mod variable;

/// The command that writes all files of [`files`].
pub const COMMAND: &str = "cargo run -p railscope-dashboards";

/// Every generated file: its path below the root of the repository, and its text.
pub fn files() -> Vec<(String, String)> {
    let dashboards = boards::all();
    let mut files: Vec<_> = dashboards
        .iter()
        .map(|dashboard| {
            let path = format!("dashboards/{}.json", dashboard.board.file());
            (path, render::dashboard(dashboard))
        })
        .collect();
    files.push((
        String::from("dashboards/kustomization.yaml"),
        kustomize::kustomization(&dashboards),
    ));
    files.push((
        String::from("docs/dashboards.md"),
        docs::document(&dashboards),
    ));
    files
}
