//! `docs/dashboards.md`: every dashboard with its question, and every panel with what it shows.

use crate::COMMAND;
use crate::board::Dashboard;
use crate::panel::Kind;
use crate::routes::ROUTES;

const OPENING: &str = "\
# Dashboards

GENERATED

Nine Grafana dashboards (10.4 or newer), one question each. They need Prometheus with the
[alert rules](../alerts/railscope.rules.yml) and the [recording rules](../alerts/railscope-recording.rules.yml). Start at *Fleet*.

- **Drill-down.** Every row of a table and every curve with a name links to the next dashboard; variables and time range are kept. From
  *Fleet*, one link leads to an incident, a second one to the node, the leaf, the job or the evidence on Railscope's own web page.
- **Variables.** `cluster` is the label or external label of that name. `su` is the scalable unit: a target label, set by the collector's
  list of targets (`/api/v1/sd`); with another list it is empty. `rail` and `leaf` come from the fabric graph. Links to Railscope use the
  address under which Prometheus scrapes the collector (label `instance`).
- **Cost.** No query reads all ports or all GPUs: recording rules compute sums, medians and top lists once. Only a panel about one chosen
  node reads the series of the exporter itself. At most, a query reads one series for each node ([measured](#what-it-costs)).
- **Thresholds** come from the data: link speed, the lanes that a link could have, the median of the cluster, the power limit.
- **Full profile.** Prometheus scrapes the default profile. Panels that need the full profile are marked, and are empty without it: scrape
  `/metrics?profile=full` (`params: {profile: [full]}`) on the nodes that you examine.
- **Not shown.** Counters of switch ports are not in Prometheus; the collector uses them and its API has them. Step times are shown of jobs
  that [write them](step-times.md); of all others *Jobs* shows throughput compared with the median of the job.

## Install

| where | how |
|---|---|
| Grafana on a host | mount `packaging/grafana` at `/etc/grafana/provisioning` and `dashboards` at `/var/lib/grafana/dashboards/railscope` |
| Kubernetes, Grafana with its sidecar | `kubectl apply -k packaging/kubernetes/dashboards`: one ConfigMap for each, label `grafana_dashboard: \"1\"` |
| by hand | import `dashboards/*.json` |

## The nine

*With data*: panels that show something on that scenario of the demo with 16 nodes, after six minutes. The others show what is not
wrong there, or need Ethernet, probes or the full profile. [CONTRIBUTING](../CONTRIBUTING.md#look-at-the-dashboards) has the command that
draws all of them over the demo and counts.

";

const ROUTES_OPENING: &str = "
## From the fleet to the cause

At most two links for each scenario of the demo. Each arrow is a link, which sets the variables. A test compares the table with
the dashboards and with the scenarios.

| scenario | class of the incident | panels |
|---|---|---|
";

const COST: &str = "
## What it costs

`tests/bench/dashboard_queries` copies the series of a demo until they are those of 9,984 GPUs (1,248 nodes, 9,984 ports, 312
leaves) over 50 minutes, and asks a Prometheus 2.42 for them on 2 shared virtual CPUs, with other work beside it:

| | measured |
|---|---|
| series of exporters and collector, and recorded | 646,538 and 30,155 |
| one evaluation of all 88 recording rules, each as an instant query; every 30 s | 4.6 s of one CPU |
| slowest rule | 0.38 s: the 20 ports with the most errors |
| slowest query of a dashboard, 50 min in steps of 15 s | 0.31 s: *Slowest GPUs of the jobs* |
| samples that it reads; Prometheus counts those of an hour anew in each of the 201 steps | 25.8 million |
| queries of all dashboards that take longer than 0.5 s | 0 of 235 |
";

pub(crate) fn document(dashboards: &[Dashboard]) -> String {
    let generated = format!("Generated from `dashboards/src` by `{COMMAND}`. Do not edit.");
    let mut text = OPENING.replace("GENERATED", &generated);
    text += "| dashboard | question | panels | queries | with data | file |\n|---|---|---|---|---|---|\n";
    for Dashboard { board, panels } in dashboards {
        let shown = panels.iter().filter(|panel| panel.kind != Kind::Row);
        let (scene, filled) = board.filled_by();
        let queries: usize = panels.iter().map(|panel| panel.queries.len()).sum();
        text += &format!(
            "| {} | {} | {} | {queries} | {filled} on `{scene}` | `{}.json` |\n",
            board.title(),
            board.question(),
            shown.count(),
            board.file()
        );
    }
    text += &routes();
    text += COST;
    for Dashboard { board, panels } in dashboards {
        text += &format!(
            "\n## {}\n\n{}\n\n| panel | shows |\n|---|---|\n",
            board.title(),
            board.question()
        );
        for panel in panels.iter().filter(|panel| panel.kind != Kind::Row) {
            text += &format!("| {} | {} |\n", panel.title, panel.description);
        }
    }
    text
}

/// Which panels show each scenario of the demo.
fn routes() -> String {
    let mut text = String::from(ROUTES_OPENING);
    for route in ROUTES {
        let class = match route.class {
            "" => String::from("none"),
            class => format!("`{class}`"),
        };
        let panels = route.panels.iter();
        let panels: Vec<_> = panels
            .map(|(board, panel)| format!("{}: *{panel}*", board.title()))
            .collect();
        text += &format!("| `{}` | {class} | {} |\n", route.scene, panels.join(" → "));
    }
    text
}
