//! `railscope check --file`: checks recordings of single nodes, and finds nodes that differ from their peers.

mod kernel_log;

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use anyhow::bail;
use railscope_collector::fabric::plans::{Document, Format, Opened, odd_nodes, read};
use railscope_model::plan::PlanError;
use serde::Serialize;

use crate::topology::files_of;

/// Format of a recorded kernel log in a report.
const KERNEL_LOG: &str = "kernel-log";

/// The result of all files.
#[derive(Debug, Default, Serialize)]
pub(crate) struct FileReport {
    files: Vec<NodeReport>,
    /// Nodes that differ from their peers.
    odd: Vec<String>,
    /// Files that are unusable here, with the reason.
    refused: Vec<String>,
}

#[derive(Debug, Serialize)]
struct NodeReport {
    file: String,
    format: String,
    answer: String,
    findings: Vec<String>,
    /// Unreadable lines.
    problems: Vec<String>,
}

/// Values by which nodes of one format are compared, with the file of each node.
type Identities = Vec<(String, BTreeMap<String, String>)>;

/// Reads files, and directories of files.
pub(crate) fn run(paths: &[PathBuf]) -> anyhow::Result<FileReport> {
    let mut report = FileReport::default();
    let mut alike: BTreeMap<Format, Identities> = BTreeMap::new();
    for path in files_of(paths)? {
        let name = path.display().to_string();
        let text = match std::fs::read(&path) {
            Ok(bytes) => String::from_utf8_lossy(&bytes).into_owned(),
            Err(error) => {
                report.refused.push(format!("{name}: {error}"));
                continue;
            }
        };
        report.read_file(&name, &text, &mut alike);
    }
    for nodes in alike.values() {
        report.odd.extend(odd_nodes(nodes));
    }
    if report.files.is_empty() {
        bail!("{}", report.refused.join("\n"));
    }
    Ok(report)
}

impl FileReport {
    fn read_file(&mut self, file: &str, text: &str, alike: &mut BTreeMap<Format, Identities>) {
        match read(file, text, None) {
            // A recording of several commands contains several documents.
            Ok(opened) if opened.format != Format::SmiQuery && text.contains("NVSMI LOG") => {
                self.add(opened, alike);
                if let Ok(query) = read(file, text, Some(Format::SmiQuery)) {
                    self.add(query, alike);
                }
            }
            Ok(opened) => self.add(opened, alike),
            Err(errors) => match kernel_log::read(Path::new(file), text) {
                Some((answer, findings, unparsed)) => self.files.push(NodeReport {
                    file: file.to_owned(),
                    format: KERNEL_LOG.to_owned(),
                    answer,
                    findings,
                    problems: match unparsed {
                        0 => Vec::new(),
                        lines => vec![format!("{lines} lines that are no records of a kernel log")],
                    },
                }),
                None => match kernel_log::refusal(file, text) {
                    Some(refused) => self.refused.push(refused),
                    None => self.refused.extend(errors.iter().map(PlanError::to_string)),
                },
            },
        }
    }

    fn add(&mut self, opened: Opened, alike: &mut BTreeMap<Format, Identities>) {
        let file = opened.file.as_str();
        let format = opened.format;
        let problems: Vec<String> = opened.problems.iter().map(PlanError::to_string).collect();
        let mut add = |file: String, answer: String, findings: Vec<String>, identity| {
            alike
                .entry(format)
                .or_default()
                .push((stem(&file), identity));
            self.files.push(NodeReport {
                file,
                format: format.to_string(),
                answer,
                findings,
                problems: problems.clone(),
            });
        };
        match opened.document {
            Document::Gpus(gpus) => {
                let answer = gpus.to_string();
                let answer = answer.lines().next().unwrap_or_default().to_owned();
                add(file.to_owned(), answer, gpus.findings(), gpus.identity());
            }
            Document::Switch(ports) => {
                let answer = ports.answer.join("; ");
                add(file.to_owned(), answer, ports.findings, BTreeMap::new());
            }
            Document::Nodes(nodes) => {
                for node in nodes {
                    let host = node.host.as_ref().map(|host| format!(" (host {host})"));
                    let file = format!("{file}{}", host.unwrap_or_default());
                    add(file, node.verdict(), node.findings(), node.identity());
                }
            }
            _ => self.refused.push(format!(
                "{file}: {format} describes a fabric, not one node; use \"railscope topology show\""
            )),
        }
    }

    /// Whether there are no findings, problems, differences or rejected files.
    pub(crate) fn is_clean(&self) -> bool {
        let quiet = |node: &NodeReport| node.findings.is_empty() && node.problems.is_empty();
        self.files.iter().all(quiet) && self.odd.is_empty() && self.refused.is_empty()
    }

    /// The report as text.
    pub(crate) fn text(&self) -> String {
        let mut text = String::new();
        for node in &self.files {
            // Writing to a String does not fail.
            writeln!(text, "{}: {}", node.file, node.answer).ok();
            for finding in &node.findings {
                writeln!(text, "  WRONG      {finding}").ok();
            }
            for problem in &node.problems {
                writeln!(text, "  unreadable {problem}").ok();
            }
        }
        // Switches and kernel logs are not compared with each other.
        let alone = [Format::Switch.to_string(), KERNEL_LOG.to_owned()];
        let is_node = |file: &&NodeReport| !alone.contains(&file.format);
        let nodes = self.files.iter().filter(is_node).count();
        if nodes > 1 {
            writeln!(text, "{nodes} nodes compared").ok();
        }
        for odd in &self.odd {
            writeln!(text, "  DIFFERS    {odd}").ok();
        }
        for refused in &self.refused {
            writeln!(text, "  rejected   {refused}").ok();
        }
        text
    }
}

/// The file name without its directory, which names the node in comparisons.
fn stem(file: &str) -> String {
    let name = Path::new(file).file_name();
    name.map_or_else(
        || file.to_owned(),
        |name| name.to_string_lossy().into_owned(),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Output of `nvidia-smi -q` for two GPUs, reduced to the tested fields.
    fn query(driver: &str, dram: u32, fabric: &str) -> String {
        let gpu = |bus: u8| {
            format!(
                "GPU 00000000:{bus:02X}:00.0\n    Product Name                          : NVIDIA H100 80GB HBM3\n    ECC Errors\n        Volatile\n            DRAM Uncorrectable            : {}\n\
                 \x20   Remapped Rows\n        Pending                           : {}\n    Fabric\n        State                             : {fabric}\n",
                if bus == 0x43 { dram } else { 0 },
                if bus == 0x43 && dram > 0 { "Yes" } else { "No" },
            )
        };
        format!(
            "==============NVSMI LOG==============\n\nDriver Version                            : {driver}\nAttached GPUs                             : 2\n{}{}",
            gpu(0x1b),
            gpu(0x43)
        )
    }

    fn report(files: &[(&str, String)]) -> FileReport {
        let folder = tempfile::tempdir().expect("a folder");
        for (name, text) in files {
            std::fs::write(folder.path().join(name), text).expect("a file");
        }
        run(&[folder.path().to_owned()]).expect("a report")
    }

    #[test]
    fn a_gpu_with_memory_errors_is_reported_with_an_action() {
        let report = report(&[("n1", query("550.90", 3, "Completed"))]);
        let text = report.text();
        assert!(!report.is_clean());
        assert!(
            text.contains("GPU 00000000:43:00.0: uncorrectable memory errors")
                && text.contains("= 3"),
            "{text}"
        );
        assert!(
            text.contains("row remap pending: drain the node and reset the GPU"),
            "{text}"
        );
        assert!(!text.contains("00000000:1B:00.0:"), "{text}");
    }

    #[test]
    fn a_node_that_differs_from_its_peers_is_reported() {
        let mut files: Vec<_> = (0..32)
            .map(|node| (format!("n{node:02}"), query("550.90", 0, "Completed")))
            .collect();
        files[17].1 = query("535.10", 0, "In Progress");
        let named: Vec<_> = files
            .iter()
            .map(|(name, text)| (name.as_str(), text.clone()))
            .collect();
        let text = report(&named).text();
        assert!(
            text.contains("DIFFERS    n17: driver version is 535.10; 31 of 32 nodes have 550.90"),
            "{text}"
        );
        assert!(text.contains("not joined the NVLink fabric"), "{text}");
        assert_eq!(text.matches("DIFFERS").count(), 1, "{text}");
    }

    #[test]
    fn a_switchs_ports_are_checked_and_not_compared_with_nodes() {
        let log = |at: &str| {
            format!(
                "Apr  9 {at}  leaf-1 mib2d[1]: SNMP_TRAP_LINK_DOWN: ifIndex 5, ifAdminStatus up(1), ifOperStatus down(2), ifName et-0/0/1\n"
            )
        };
        let report = report(&[
            ("leaf-1", log("12:00:00")),
            ("n1", query("550.90", 0, "N/A")),
        ]);
        let text = report.text();
        assert!(
            text.contains("WRONG      leaf-1 et-0/0/1: down since Apr  9 12:00:00"),
            "{text}"
        );
        assert!(
            !text.contains("compared") && !text.contains("DIFFERS"),
            "{text}"
        );
    }

    #[test]
    fn a_file_of_another_kind_is_rejected_and_the_others_are_read() {
        let report = report(&[
            ("n1", query("550.90", 0, "N/A")),
            ("topology.conf", "SwitchName=s0 Nodes=n[1-2]\n".to_owned()),
        ]);
        assert_eq!((report.files.len(), report.refused.len()), (1, 1));
        assert!(
            report.refused[0].contains("use \"railscope topology show\""),
            "{:?}",
            report.refused
        );
    }
}
