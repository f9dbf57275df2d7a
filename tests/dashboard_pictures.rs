//! Every dashboard can be drawn; what the pictures show is for people, see `e2e_pictures.rs`.

use serde_json::json;

use crate::dashboards::{dashboards, panels};
use crate::pictures::{Prometheus, draw};

#[test]
fn a_dashboard_without_data_is_drawn_and_every_panel_says_that_there_is_none() {
    for (file, dashboard) in dashboards() {
        let prometheus = Prometheus {
            ask: &|_| Ok(json!({ "data": { "result": [] } })),
            from: 0.0,
            to: 3600.0,
            interval: 15.0,
        };
        let picture = draw(&dashboard, &prometheus, &[]);
        let once = panels(&dashboard).filter(|(_, panel)| panel.get("repeat").is_none());
        assert_eq!(picture.errors, [""; 0], "{file}");
        assert_eq!(picture.empty.len(), once.count(), "{file}");
        assert_eq!(
            picture.html.matches(">No data<").count(),
            picture.empty.len(),
            "{file}"
        );
    }
}

#[test]
fn a_panel_of_every_kind_is_drawn_of_one_series() {
    let labels = json!({ "cluster": "demo", "kept": "a", "su": "su0", "rail": "0", "le": "0.001", "id": "1", "source": "1", "target": "1" });
    let ask = |path: &str| {
        let series = if path.starts_with("/api/v1/query_range") {
            json!({ "metric": labels, "values": [[3000.0, "1"], [3015.0, "NaN"], [3600.0, "2"]] })
        } else {
            json!({ "metric": labels, "value": [3600.0, "2"] })
        };
        Ok(json!({ "data": { "result": [series] } }))
    };
    for (file, dashboard) in dashboards() {
        let prometheus = Prometheus {
            ask: &ask,
            from: 0.0,
            to: 3600.0,
            interval: 15.0,
        };
        let picture = draw(&dashboard, &prometheus, &[]);
        assert_eq!(
            (picture.errors, picture.empty),
            (Vec::new(), Vec::new()),
            "{file}"
        );
        let sections = picture.html.matches("<section").count();
        assert_eq!(sections, panels(&dashboard).count(), "{file}");
        for wrong in ["not drawn", "NaN", "inf\""] {
            assert!(!picture.html.contains(wrong), "{file}: {wrong}");
        }
    }
}
