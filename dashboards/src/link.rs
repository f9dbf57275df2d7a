//! Links to other dashboards, runbooks and Railscope's own web page. All keep variables and time.

use serde_json::{Value, json};

use crate::board::Board;
use crate::variable::Variable;

/// Where labels of the clicked value are: tables have fields, curves have labels.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum From {
    Table,
    Curve,
}

/// Where a link leads.
#[derive(Debug, Clone)]
enum Target {
    /// A dashboard, with variables set to labels of the clicked value.
    Board(Board, Vec<(Variable, &'static str)>),
    /// A dashboard, with one variable set to the clicked cell.
    BoardOfCell(Board, Variable),
    /// A page of Railscope's own, with a label of the clicked value at its end.
    OwnPage(&'static str, Option<&'static str>),
    /// The runbook of the class.
    Runbook,
}

/// One link.
#[derive(Debug, Clone)]
pub(crate) struct Link {
    title: &'static str,
    target: Target,
}

impl Link {
    /// To a dashboard.
    pub(crate) fn to(board: Board) -> Self {
        Self {
            title: board.title(),
            target: Target::Board(board, Vec::new()),
        }
    }

    /// To a dashboard, with a variable set to the value of the clicked cell.
    pub(crate) fn to_cell(board: Board, variable: Variable) -> Self {
        Self {
            title: board.title(),
            target: Target::BoardOfCell(board, variable),
        }
    }

    /// To Railscope's page of the incident that a label names.
    pub(crate) fn incident_page() -> Self {
        Self {
            title: "Evidence in Railscope",
            target: Target::OwnPage("incidents/", Some("incident")),
        }
    }

    /// To a page of Railscope's own.
    pub(crate) fn own_page(title: &'static str, path: &'static str) -> Self {
        Self {
            title,
            target: Target::OwnPage(path, None),
        }
    }

    /// To the runbook of the class in the clicked cell.
    pub(crate) fn runbook() -> Self {
        Self {
            title: "Runbook",
            target: Target::Runbook,
        }
    }

    /// Sets a variable to a label of the clicked value.
    pub(crate) fn set(mut self, variable: Variable, label: &'static str) -> Self {
        if let Target::Board(_, set) = &mut self.target {
            set.push((variable, label));
        }
        self
    }

    /// The dashboard that it leads to.
    #[cfg(test)]
    pub(crate) fn board(&self) -> Option<Board> {
        match self.target {
            Target::Board(board, _) | Target::BoardOfCell(board, _) => Some(board),
            Target::OwnPage(..) | Target::Runbook => None,
        }
    }

    /// As Grafana reads it. Variables that both dashboards have are passed on.
    pub(crate) fn json(&self, here: Board, from: From) -> Value {
        let label = |name: &str| match from {
            From::Table => format!("${{__data.fields.{name}}}"),
            From::Curve => format!("${{__field.labels.{name}}}"),
        };
        let (url, is_outside) = match &self.target {
            Target::Board(board, set) => {
                let set: Vec<_> = set
                    .iter()
                    .map(|(variable, name)| (*variable, label(name)))
                    .collect();
                (dashboard(here, *board, &set), false)
            }
            Target::BoardOfCell(board, variable) => {
                let set = [(*variable, String::from("${__value.text}"))];
                (dashboard(here, *board, &set), false)
            }
            Target::OwnPage(path, name) => {
                let name = name.map(label).unwrap_or_default();
                (format!("http://${{collector}}/{path}{name}"), true)
            }
            Target::Runbook => (
                String::from(
                    "https://github.com/railscope/railscope/blob/main/alerts/runbooks/${__value.text}.md",
                ),
                true,
            ),
        };
        json!({ "title": self.title, "url": url, "targetBlank": is_outside })
    }
}

fn dashboard(here: Board, there: Board, set: &[(Variable, String)]) -> String {
    let mut url = format!("/d/{}?${{datasource:queryparam}}", there.uid());
    for variable in there.variables() {
        let name = variable.name();
        if let Some((_, value)) = set.iter().find(|(wanted, _)| wanted == variable) {
            url += &format!("&var-{name}={value}");
        } else if here.variables().contains(variable) {
            url += &format!("&${{{name}:queryparam}}");
        }
    }
    url + "&${__url_time_range}"
}

/// Links at the top of a dashboard.
pub(crate) fn at_the_top(here: Board) -> Vec<Value> {
    let to = |board: &Board| {
        json!({
            "type": "link",
            "title": board.title(),
            "tooltip": board.question(),
            "url": format!("/d/{}", board.uid()),
            "icon": "dashboard",
            "asDropdown": false,
            "includeVars": true,
            "keepTime": true,
            "tags": [],
            "targetBlank": false,
        })
    };
    let mut links: Vec<_> = here.next().iter().map(to).collect();
    links.push(json!({
        "type": "dashboards",
        "title": "All of Railscope",
        "tooltip": "",
        "url": "",
        "icon": "external link",
        "asDropdown": true,
        "includeVars": true,
        "keepTime": true,
        "tags": ["railscope"],
        "targetBlank": false,
    }));
    links.push(json!({
        "type": "link",
        "title": "Railscope",
        "tooltip": "Railscope's own web page",
        "url": format!("http://${{collector}}/{}", here.own_page()),
        "icon": "external link",
        "asDropdown": false,
        "includeVars": false,
        "keepTime": false,
        "tags": [],
        "targetBlank": true,
    }));
    links
}
