//! Links of dashboards: every table leads on, every target exists, and variables and time go with it.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use crate::dashboards::{dashboards, list, panels, text};

const RUNBOOKS: &str =
    "https://github.com/railscope/railscope/blob/main/alerts/runbooks/${__value.text}.md";

/// Variables of each dashboard, by its uid.
fn variables() -> BTreeMap<String, BTreeSet<String>> {
    let of = |dashboard: &Value| {
        let names = list(dashboard, "/templating/list").iter();
        names
            .map(|variable| text(variable, "/name").to_owned())
            .collect()
    };
    let all = dashboards().into_iter();
    all.map(|(_, dashboard)| (text(&dashboard, "/uid").to_owned(), of(&dashboard)))
        .collect()
}

/// Links of values in a panel: those of all its fields and those of single columns.
fn links(panel: &Value) -> Vec<&Value> {
    let mut found: Vec<_> = list(panel, "/fieldConfig/defaults/links").iter().collect();
    for field in list(panel, "/fieldConfig/overrides") {
        let properties = list(field, "/properties").iter();
        let links = properties.filter(|property| text(property, "/id") == "links");
        found.extend(links.flat_map(|property| list(property, "/value")));
    }
    found
}

/// The target's uid, and the variables that the link passes.
fn parsed(url: &str) -> Option<(&str, BTreeSet<String>)> {
    let (uid, query) = url.strip_prefix("/d/")?.split_once('?')?;
    let passed = query.split('&').filter_map(|part| {
        let whole = part
            .strip_prefix("${")
            .and_then(|rest| rest.strip_suffix(":queryparam}"));
        let one = part
            .strip_prefix("var-")
            .and_then(|rest| Some(rest.split_once('=')?.0));
        whole.or(one).map(str::to_owned)
    });
    Some((uid, passed.collect()))
}

#[test]
fn every_link_to_a_dashboard_exists_and_passes_variables_and_time() {
    let variables = variables();
    let mut count = 0;
    for (file, dashboard) in dashboards() {
        let here = &variables[text(&dashboard, "/uid")];
        for (title, panel) in panels(&dashboard) {
            for link in links(panel) {
                let url = text(link, "/url");
                if !url.starts_with("/d/") {
                    let is_known = url == RUNBOOKS || url.starts_with("http://${collector}/");
                    assert!(is_known, "{file}: {title}: {url}");
                    assert!(
                        url == RUNBOOKS || here.contains("collector"),
                        "{file}: {title}"
                    );
                    continue;
                }
                let (uid, passed) = parsed(url).unwrap_or_else(|| panic!("{file}: {title}: {url}"));
                let there = variables
                    .get(uid)
                    .unwrap_or_else(|| panic!("{file}: {title}: a link to {uid}"));
                assert!(
                    url.ends_with("&${__url_time_range}"),
                    "{file}: {title}: {url}: without the time"
                );
                let unknown: Vec<_> = passed.difference(there).collect();
                assert!(
                    unknown.is_empty(),
                    "{file}: {title}: {uid} has no {unknown:?}"
                );
                let both: BTreeSet<_> = here.intersection(there).cloned().collect();
                let lost: Vec<_> = both.difference(&passed).collect();
                assert!(lost.is_empty(), "{file}: {title}: {url} loses {lost:?}");
                count += 1;
            }
        }
    }
    assert!(count > 100, "{count}");
}

#[test]
fn every_table_links_on() {
    for (file, dashboard) in dashboards() {
        for (title, panel) in panels(&dashboard) {
            let is_table = ["table", "nodeGraph"].contains(&text(panel, "/type"));
            assert!(
                !is_table || !links(panel).is_empty(),
                "{file}: {title}: a dead end"
            );
        }
    }
}

#[test]
fn a_link_takes_its_values_from_labels_that_the_query_keeps() {
    for (file, dashboard) in dashboards() {
        for (title, panel) in panels(&dashboard) {
            let queries: Vec<_> = list(panel, "/targets")
                .iter()
                .map(|target| text(target, "/expr"))
                .collect();
            for link in links(panel) {
                let url = text(link, "/url");
                for start in ["${__data.fields.", "${__field.labels."] {
                    for rest in url.split(start).skip(1) {
                        let label = rest.split('}').next().unwrap_or_default();
                        let kept = queries.iter().any(|query| keeps(query, label));
                        assert!(kept, "{file}: {title}: {url}: no label {label}");
                    }
                }
            }
        }
    }
}

/// Whether a label is among those that an aggregation keeps, or that `label_replace` makes.
fn keeps(query: &str, label: &str) -> bool {
    let mut lists = query
        .split("by (")
        .skip(1)
        .chain(query.split("group_left (").skip(1));
    let is_kept = lists.any(|rest| {
        let list = rest.split(')').next().unwrap_or_default();
        list.split(',').any(|name| name.trim() == label)
    });
    is_kept || query.contains(&format!(r#", "{label}", ""#))
}

#[test]
fn every_dashboard_shows_incidents_and_leads_to_others_and_to_railscope() {
    let variables = variables();
    let mut reached: BTreeSet<String> = BTreeSet::from([String::from("railscope-fleet")]);
    for (file, dashboard) in dashboards() {
        let annotations = list(&dashboard, "/annotations/list").iter();
        let mut expressions = annotations.map(|annotation| text(annotation, "/expr"));
        assert!(
            expressions.any(|expression| expression.contains("(railscope_incident_active{")),
            "{file}: no incidents on its curves"
        );
        let mut leads_home = false;
        for link in list(&dashboard, "/links") {
            let url = text(link, "/url");
            leads_home |= url.starts_with("http://${collector}/");
            if let Some(uid) = url.strip_prefix("/d/") {
                assert!(variables.contains_key(uid), "{file}: a link to {uid}");
                reached.insert(uid.to_owned());
                assert!(
                    link["includeVars"] == true && link["keepTime"] == true,
                    "{file}: {uid}"
                );
            }
        }
        assert!(leads_home, "{file}: no link to Railscope's own page");
        for (_, panel) in panels(&dashboard) {
            for (uid, _) in links(panel)
                .into_iter()
                .filter_map(|link| parsed(text(link, "/url")))
            {
                reached.insert(uid.to_owned());
            }
        }
    }
    assert_eq!(
        reached,
        variables.into_keys().collect(),
        "dashboards that no link reaches"
    );
}

/// From the fleet to the component in two links: its incidents lead to the incident, and that to the node, the
/// leaf, the job and the evidence.
#[test]
fn the_root_cause_is_two_links_from_the_fleet() {
    let all: BTreeMap<_, _> = dashboards().into_iter().collect();
    let targets = |file: &str, wanted: &str| -> BTreeSet<String> {
        let found = panels(&all[file]).find(|(title, _)| *title == wanted);
        let (_, panel) = found.unwrap_or_else(|| panic!("{file}: no {wanted}"));
        let urls = links(panel).into_iter().map(|link| text(link, "/url"));
        let uids = urls.map(|url| parsed(url).map_or(url, |(uid, _)| uid).to_owned());
        uids.collect()
    };
    let first = targets("fleet.json", "Incidents");
    for wanted in [
        "railscope-incident",
        "railscope-node",
        "http://${collector}/incidents/${__data.fields.incident}",
    ] {
        assert!(first.contains(wanted), "{wanted}: {first:?}");
    }
    for (panel, wanted) in [
        ("This incident", "railscope-node"),
        ("Jobs that use it", "railscope-jobs"),
        ("Credit wait at the leaf", "railscope-fabric"),
        ("Pause of the node", "railscope-roce-nvlink"),
    ] {
        assert!(
            targets("incident.json", panel).contains(wanted),
            "{panel}: {wanted}"
        );
    }
}

/// The path to each scenario's cause as `docs/dashboards.md` has it: its name, and the panels, each with its dashboard.
fn routes() -> Vec<(String, Vec<(String, String)>)> {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/dashboards.md");
    let document = std::fs::read_to_string(path).expect("a document");
    let (_, rest) = document
        .split_once("## From the fleet to the cause")
        .expect("a chapter");
    let rows = rest.lines().filter(|line| line.starts_with("| `"));
    let route = |row: &str| {
        let cells: Vec<_> = row.trim_matches(['|', ' ']).split(" | ").collect();
        let [scene, _, panels] = cells[..] else {
            panic!("{row}")
        };
        let panels = panels.split(" → ").map(|step| {
            let (board, panel) = step.split_once(": ").expect("a dashboard and a panel");
            let panel = panel.trim_matches('*');
            (format!("Railscope / {board}"), panel.to_owned())
        });
        (scene.trim_matches('`').to_owned(), panels.collect())
    };
    rows.map(route).collect()
}

/// Variables that a link from a panel to a dashboard passes: its own links, and those at the top, which pass all.
fn passed(here: &Value, panel: &Value, uid: &str) -> Option<BTreeSet<String>> {
    let mut of_panel = links(panel).into_iter();
    let own = of_panel.find_map(|link| parsed(text(link, "/url")).filter(|(to, _)| *to == uid));
    let top = || {
        let mut links = list(here, "/links").iter();
        links.find(|link| text(link, "/url") == format!("/d/{uid}"))?;
        let names = list(here, "/templating/list").iter();
        Some(names.map(|name| text(name, "/name").to_owned()).collect())
    };
    own.map(|(_, passed)| passed).or_else(top)
}

#[test]
fn each_scenario_leads_from_the_fleet_to_its_cause_in_two_links_that_fill_the_variables() {
    let all: BTreeMap<_, _> = dashboards()
        .into_iter()
        .map(|(_, dashboard)| (text(&dashboard, "/title").to_owned(), dashboard))
        .collect();
    let find = |(board, title): &(String, String)| {
        let dashboard = all.get(board).unwrap_or_else(|| panic!("no {board}"));
        let found = panels(dashboard).find(|(found, _)| found == title);
        let (_, panel) = found.unwrap_or_else(|| panic!("{board}: no {title}"));
        (dashboard, panel)
    };
    let routes = routes();
    assert!(routes.len() >= 13, "{routes:?}");
    for (scene, steps) in routes {
        assert!((1..=3).contains(&steps.len()), "{scene}: {steps:?}");
        assert_eq!(steps[0].0, "Railscope / Fleet", "{scene}");
        for pair in steps.windows(2) {
            let ((here, panel), (there, next)) = (find(&pair[0]), find(&pair[1]));
            let passed = passed(here, panel, text(there, "/uid"))
                .unwrap_or_else(|| panic!("{scene}: no link {pair:?}"));
            // What the next panel reads: variables that are passed, or that follow from one that is.
            let derived = list(there, "/templating/list").iter().filter(|variable| {
                let query = text(variable, "/definition");
                passed
                    .iter()
                    .any(|name| query.contains(&format!("\"${name}\"")))
            });
            let known: BTreeSet<_> = derived
                .map(|variable| text(variable, "/name").to_owned())
                .chain(passed.iter().cloned())
                .collect();
            let reads = |name: &String| {
                let mut queries = list(next, "/targets").iter();
                queries.any(|target| text(target, "/expr").contains(&format!("\"${name}\"")))
            };
            assert!(
                known.iter().any(reads),
                "{scene}: {pair:?} passes {passed:?}"
            );
            if text(there, "/uid") == "railscope-incident" {
                assert!(passed.contains("incident"), "{scene}: {passed:?}");
            }
        }
    }
}
