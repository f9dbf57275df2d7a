//! What is shipped for operators fits the binary: flags exist, examples are accepted, units are hardened.

use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use crate::support::{RAILSCOPE, root, run, skip, which};

/// Maximum result of `systemd-analyze security`: 10 is no protection at all.
const LARGEST_EXPOSURE: f64 = 2.0;
const LIMIT: Duration = Duration::from_secs(30);

fn packaging(path: &str) -> PathBuf {
    root().join("packaging").join(path)
}

fn read(path: &str) -> String {
    std::fs::read_to_string(packaging(path))
        .unwrap_or_else(|error| panic!("packaging/{path}: {error}"))
}

fn help(subcommand: &str) -> String {
    let (well, text) = run(Command::new(RAILSCOPE).args([subcommand, "--help"]), LIMIT);
    assert!(well, "{text}");
    text
}

/// Words of a file that begin so, without what follows.
fn words<'a>(text: &'a str, prefix: &'a str) -> impl Iterator<Item = &'a str> {
    let part = |c: char| c.is_ascii_alphanumeric() || "-._".contains(c);
    let words = text
        .split(move |c| !part(c))
        .filter(move |word| word.starts_with(prefix));
    words.map(|word| word.trim_end_matches(['.', '-']))
}

#[test]
fn every_flag_and_variable_that_is_shipped_exists() {
    let [exporter, collector] = ["exporter", "collector"].map(help);
    let files = [
        ("systemd/railscope-exporter.service", &exporter),
        ("systemd/railscope-collector.service", &collector),
        ("kubernetes/exporter.yaml", &exporter),
        ("kubernetes/collector.yaml", &collector),
    ];
    for (file, help) in files {
        let text = read(file);
        let ours = text
            .lines()
            .filter(|line| !line.contains("systemd-analyze"));
        for line in ours {
            for flag in words(line, "--").filter(|flag| flag.len() > 2 && *flag != "--help") {
                assert!(
                    help.contains(flag),
                    "packaging/{file}: {flag} is no flag: {line}"
                );
            }
            for variable in words(line, "RAILSCOPE_") {
                assert!(
                    help.contains(variable),
                    "packaging/{file}: nobody reads {variable}: {line}"
                );
            }
        }
    }
}

#[test]
fn shipped_configurations_of_the_collector_are_accepted() {
    let folder = tempfile::tempdir().expect("a folder");
    // The value of collector.toml in the ConfigMap: the lines indented below its key.
    let map = read("kubernetes/collector.yaml");
    let (_, map) = map
        .split_once("  collector.toml: |\n")
        .expect("a ConfigMap");
    let inside = map
        .lines()
        .take_while(|line| line.is_empty() || line.starts_with("    "));
    let config: Vec<_> = inside
        .map(|line| line.strip_prefix("    ").unwrap_or(line))
        .collect();
    let of_kubernetes = folder.path().join("collector.toml");
    std::fs::write(&of_kubernetes, config.join("\n")).expect("a file");
    std::fs::write(folder.path().join("targets.json"), "[]").expect("a file");
    for file in [packaging("collector.toml"), of_kubernetes] {
        let (well, said) = run(
            Command::new(RAILSCOPE).arg("check-config").arg(&file),
            LIMIT,
        );
        assert!(well, "{}: {said}", file.display());
    }
}

/// Each unit as it stands, and with each of its drop-ins.
fn units() -> Vec<(PathBuf, Option<PathBuf>)> {
    let mut units = Vec::new();
    for name in ["railscope-exporter.service", "railscope-collector.service"] {
        let unit = packaging("systemd").join(name);
        let folder = unit.with_extension("service.d");
        let drop_ins = std::fs::read_dir(&folder).expect("a folder of drop-ins");
        units.push((unit.clone(), None));
        units.extend(drop_ins.map(|entry| {
            let drop_in = entry.expect("a drop-in").path();
            (unit.clone(), Some(drop_in))
        }));
    }
    units
}

#[test]
fn units_run_without_rights_that_they_do_not_need() {
    let Some(analyze) = which("systemd-analyze") else {
        skip!("not installed: systemd-analyze")
    };
    for (unit, drop_in) in units() {
        let folder = tempfile::tempdir().expect("a folder");
        let copy = folder.path().join(unit.file_name().expect("a name"));
        std::fs::copy(&unit, &copy).expect("a copy");
        if let Some(drop_in) = &drop_in {
            let beside = copy.with_extension("service.d");
            std::fs::create_dir(&beside).expect("a folder");
            std::fs::copy(drop_in, beside.join("drop-in.conf")).expect("a copy");
        }
        let mut command = Command::new(&analyze);
        command
            .args(["security", "--offline=yes", "--no-pager"])
            .arg(&copy);
        let (well, said) = run(&mut command, LIMIT);
        let overall = said
            .lines()
            .find_map(|line| line.split_once("Overall exposure level for "));
        let Some(level) = overall.and_then(|(_, rest)| rest.split(' ').nth(1)?.parse::<f64>().ok())
        else {
            // Before systemd 250 it cannot check a file.
            skip!("systemd-analyze security --offline=yes: {well}: {said}");
        };
        let name = drop_in.as_ref().unwrap_or(&unit).display();
        println!("{name}: {level}");
        assert!(level <= LARGEST_EXPOSURE, "{name}: {said}");
    }
}

#[test]
fn pods_are_not_root_and_write_nothing() {
    for file in ["kubernetes/exporter.yaml", "kubernetes/collector.yaml"] {
        let text = read(file);
        for needed in [
            "runAsNonRoot: true",
            "allowPrivilegeEscalation: false",
            "readOnlyRootFilesystem: true",
            "drop: [ALL]",
            "automountServiceAccountToken: false",
        ] {
            assert!(text.contains(needed), "packaging/{file}: {needed}");
        }
        assert!(!text.contains("privileged: true"), "packaging/{file}");
        let (paths, read_only) = (
            text.matches("mountPath:").count(),
            text.matches("readOnly: true").count(),
        );
        assert_eq!(
            paths, read_only,
            "packaging/{file}: a volume that can be written"
        );
        let version = concat!("railscope:", env!("CARGO_PKG_VERSION"), "\n");
        assert!(
            text.contains(version),
            "packaging/{file}: not the image of this version"
        );
    }
}

#[test]
fn the_overlay_with_pods_patches_what_is_there_and_gives_no_capability() {
    let (base, patch) = (
        read("kubernetes/exporter.yaml"),
        read("kubernetes/with-pods/exporter.yaml"),
    );
    for shared in [
        "kind: DaemonSet",
        "  name: railscope-exporter",
        "  namespace: railscope",
        "        - name: exporter",
    ] {
        assert!(
            base.contains(shared) && patch.contains(shared),
            "{shared}: not in both"
        );
    }
    assert!(!patch.contains("capabilities"), "the base drops them all");
    let folder = patch
        .lines()
        .find_map(|line| line.trim().strip_prefix("mountPath: "))
        .expect("a mount");
    assert!(
        help("exporter").contains(&format!("{folder}/kubelet.sock")),
        "the exporter looks for the socket elsewhere than in {folder}"
    );
    assert!(
        patch.contains("readOnly: true") && patch.contains(&format!("path: {folder}\n")),
        "{patch}"
    );
}

#[test]
fn the_folder_of_step_times_is_made_where_the_exporter_looks() {
    let folder = "/run/railscope/steps";
    assert!(help("exporter").contains(&format!("[default: {folder}]")));
    let made = read("tmpfiles.d/railscope.conf");
    assert!(made.contains(&format!("\nd {folder} 1777 ")), "{made}");
    let overlay = read("kubernetes/with-step-times/exporter.yaml");
    for wanted in [
        &format!("            path: {folder}\n"),
        "            - name: RAILSCOPE_WORKLOAD_STEP_TIMES\n              value: /host/steps\n",
        "              mountPath: /host/steps\n              readOnly: true\n",
    ] {
        assert!(overlay.contains(wanted), "{wanted}: {overlay}");
    }
}

/// ConfigMaps of the dashboards, as kustomize lists them.
#[test]
fn every_dashboard_is_a_config_map_with_the_label_of_the_sidecar() {
    let overlay = read("kubernetes/dashboards/kustomization.yaml");
    assert!(
        overlay.contains("  - ../../../dashboards\n") && overlay.contains("namespace: railscope\n"),
        "{overlay}"
    );
    let list = root().join("dashboards/kustomization.yaml");
    let list = std::fs::read_to_string(list).expect("a list");
    assert!(list.contains("    grafana_dashboard: \"1\"\n"), "{list}");
    let mut count = 0;
    for entry in root().join("dashboards").read_dir().expect("dashboards") {
        let name = entry.expect("an entry").file_name();
        let name = name.to_string_lossy();
        if name.ends_with(".json") {
            assert!(list.contains(&format!("files: [{name}]")), "{name}");
            count += 1;
        }
    }
    assert_eq!(list.matches("files: [").count(), count);
    let Some(kubectl) = which("kubectl") else {
        skip!("not installed: kubectl")
    };
    let folder = packaging("kubernetes/dashboards");
    let (well, built) = run(Command::new(kubectl).arg("kustomize").arg(folder), LIMIT);
    assert!(well, "{built}");
    for wanted in [
        "kind: ConfigMap",
        "    grafana_dashboard: \"1\"",
        "  namespace: railscope",
    ] {
        let lines = built.lines().filter(|line| *line == wanted).count();
        assert_eq!(lines, count, "{wanted}");
    }
}

/// The folder that Grafana mounts as `/etc/grafana/provisioning`.
#[test]
fn grafana_finds_its_data_source_and_dashboards_where_it_looks() {
    let provider = read("grafana/dashboards/railscope.yml");
    let docs = std::fs::read_to_string(root().join("docs/dashboards.md")).expect("docs");
    let path = provider
        .lines()
        .find_map(|line| line.trim().strip_prefix("path: "))
        .expect("a path");
    assert!(docs.contains(path), "docs/dashboards.md: no {path}");
    let sources = read("grafana/datasources/railscope.yml");
    for uid in ["uid: railscope-prometheus", "uid: railscope-alertmanager"] {
        assert!(sources.contains(uid), "{uid}");
    }
    assert!(sources.contains("alertmanagerUid: railscope-alertmanager"));
}
