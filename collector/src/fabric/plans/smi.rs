//! Tables of `nvidia-smi`: `topo -m`, how far GPUs and NICs are from each other; `nvlink -s` and `nvlink -e`, the links of
//! each GPU and their errors.

use std::collections::BTreeMap;

use railscope_model::plan::PlanError;

use super::{Distance, Endpoint, NodeTopology, Source};

/// A cell of the matrix.
enum Cell {
    Itself,
    Far(Distance),
    NvLinks(u16),
}

impl Cell {
    fn read(text: &str) -> Option<Self> {
        if text == "X" {
            return Some(Self::Itself);
        }
        if let Some(links) = text.strip_prefix("NV") {
            return links.parse().ok().map(Self::NvLinks);
        }
        Distance::parse(text).map(Self::Far)
    }
}

/// A line without the escapes that underline the header, cut at its tabs; spaces where it has none.
fn cells(line: &str) -> Vec<String> {
    let mut plain = String::with_capacity(line.len());
    let mut rest = line.chars();
    while let Some(sign) = rest.next() {
        if sign == '\u{1b}' {
            // An escape goes up to its letter.
            rest.by_ref().find(char::is_ascii_alphabetic);
        } else {
            plain.push(sign);
        }
    }
    if plain.contains('\t') {
        plain
            .split('\t')
            .map(|cell| cell.trim().to_owned())
            .collect()
    } else {
        plain.split_whitespace().map(str::to_owned).collect()
    }
}

fn is_device(name: &str) -> bool {
    let digits = name
        .strip_prefix("GPU")
        .or_else(|| name.strip_prefix("NIC"));
    let named = digits.is_some_and(|digits| digits.parse::<u16>().is_ok());
    named || name.starts_with("mlx")
}

/// Reads `nvidia-smi topo -m`, wherever in the text it stands.
pub(super) fn read_topo(source: &mut Source<'_>) -> Result<NodeTopology, Vec<PlanError>> {
    let lines: Vec<(usize, Vec<String>)> = (1..).zip(source.text.lines().map(cells)).collect();
    let header = lines.iter().position(|(_, cells)| {
        cells.iter().any(|cell| cell == "GPU0") && cells.iter().any(|cell| cell.starts_with("CPU"))
    });
    let Some(header) = header else {
        return Err(vec![source.error(
            1,
            "text",
            "no header",
            "GPU0 … CPU Affinity, as nvidia-smi topo -m prints it",
        )]);
    };
    let columns: Vec<&str> = lines[header]
        .1
        .iter()
        .map(String::as_str)
        .filter(|name| is_device(name))
        .collect();
    let mut topology = NodeTopology {
        tells_nics: true,
        ..NodeTopology::default()
    };
    for name in &columns {
        let list = if name.starts_with("GPU") {
            &mut topology.gpus
        } else {
            &mut topology.nics
        };
        list.push(Endpoint {
            name: (*name).to_owned(),
            ..Endpoint::default()
        });
    }
    topology.fits(source)?;
    let places: Vec<_> = columns
        .iter()
        .map(|name| (place(&columns, name, true), place(&columns, name, false)))
        .collect();
    let rows = lines[header + 1..]
        .iter()
        .take_while(|(_, cells)| cells.first().is_some_and(|name| is_device(name)));
    let mut seen = 0;
    for (line, row) in rows {
        seen += 1;
        read_row(source, *line, row, (&columns, &places), &mut topology);
    }
    if seen != columns.len() {
        let found = format!("{seen} rows under {} columns", columns.len());
        source.problem(header + 1, "table", &found, "a row for each column");
    }
    name_nics(&lines, &mut topology);
    fold_switched(&mut topology);
    Ok(topology)
}

/// Place of a device among those of its kind.
fn place(columns: &[&str], name: &str, is_gpu: bool) -> Option<usize> {
    let mut same = columns
        .iter()
        .filter(|column| column.starts_with("GPU") == is_gpu);
    same.position(|column| *column == name)
}

/// Place of a device among the GPUs, and among the NICs.
type Places = (Option<usize>, Option<usize>);

fn read_row(
    source: &mut Source<'_>,
    line: usize,
    row: &[String],
    (columns, places): (&[&str], &[Places]),
    topology: &mut NodeTopology,
) {
    let gpu = place(columns, &row[0], true);
    if row.len() <= columns.len() {
        let found = format!("{} cells under {} columns", row.len() - 1, columns.len());
        source.problem(
            line,
            &row[0],
            &found,
            "a cell for each column: the line is truncated",
        );
    }
    for ((column, peers), text) in columns.iter().zip(places).zip(&row[1..]) {
        let Some(cell) = Cell::read(text) else {
            let expected = "X, NV with a number, PIX, PXB, PHB, NODE or SYS";
            source.problem(line, column, text, expected);
            continue;
        };
        match (cell, gpu, *peers) {
            (Cell::NvLinks(links), Some(a), (Some(b), _)) => {
                topology.nvlinks.insert((a.min(b), a.max(b)), links);
            }
            (Cell::Far(distance), Some(gpu), (_, Some(nic))) => {
                topology.distances.insert((gpu, nic), distance);
            }
            _ => {}
        }
    }
    // CPU affinity stands behind the devices, then the NUMA node.
    if let Some(gpu) = gpu {
        let numa = row.get(columns.len() + 2);
        topology.gpus[gpu].numa = numa.and_then(|numa| numa.parse().ok());
    }
}

/// The legend reports which device `NIC3` is: `  NIC3: mlx5_3`.
fn name_nics(lines: &[(usize, Vec<String>)], topology: &mut NodeTopology) {
    for (_, cells) in lines {
        let joined = cells.join(" ");
        if let Some((name, device)) = joined.trim().split_once(": ")
            && let Some(nic) = topology.nics.iter_mut().find(|nic| nic.name == name)
        {
            nic.name = device.trim().to_owned();
        }
    }
}

/// Maximum NVLinks of a GPU (NVIDIA's data sheets: V100 6, A100 12, H100 and B200 18); a row with a larger sum shows the
/// same links for each peer.
const MOST_LINKS: u16 = 18;

/// With NVSwitches every pair shows all links of the GPU; these are the same links and must not be summed. A GPU without
/// NVLink has none in its row and does not change the others.
fn fold_switched(topology: &mut NodeTopology) {
    let gpus = 0..topology.gpus.len();
    if !gpus.clone().any(|gpu| topology.links_of(gpu) > MOST_LINKS) {
        return;
    }
    let pairs = std::mem::take(&mut topology.nvlinks);
    for gpu in gpus {
        let own = pairs.iter().filter(|((a, b), _)| *a == gpu || *b == gpu);
        let most = own.map(|(_, links)| *links).max().unwrap_or(0);
        topology.switched.insert(gpu, most);
    }
}

/// Whether a line is from `nvidia-smi nvlink -s` or `-e`: a link, or the message that there is none.
pub(super) fn is_nvlink(line: &str) -> bool {
    link(line).is_some() || is_no_link(line)
}

/// Number of a link and what follows: `Link 0: 26.562 GB/s`.
fn link(line: &str) -> Option<(u8, &str)> {
    let (number, state) = line.trim_start().strip_prefix("Link ")?.split_once(':')?;
    Some((number.parse().ok()?, state.trim()))
}

/// Whether a line is the message for a GPU without active links or one that does not respond.
fn is_no_link(line: &str) -> bool {
    // Versions differ in case: `Nvlink`, `inActive`.
    line.to_ascii_lowercase()
        .contains("unable to retrieve nvlink information")
}

/// Whether GPUs of a model sit on a board with NVLink switches. Cards have NVLinks only behind a bridge, which may be absent.
fn is_switched(model: &str) -> bool {
    const MODELS: [&str; 7] = ["SXM", "HBM3", " H200", " B200", " B300", " GB200", " GB300"];
    let is_card = [" NVL", "PCIe"].iter().any(|mark| model.contains(mark));
    !is_card && MODELS.iter().any(|mark| model.contains(mark))
}

/// Whether a line is a prompt with the command.
fn is_prompt(line: &str) -> bool {
    line.contains("nvidia-smi")
}

/// Reads `nvidia-smi nvlink -s`: links that carry a speed are up; and `nvlink -e`: errors of each link.
pub(super) fn read_nvlink(source: &mut Source<'_>) -> Result<NodeTopology, Vec<PlanError>> {
    let mut topology = NodeTopology::default();
    // A session may print the links and then their errors: a GPU is identified by its whole line, with its UUID.
    let mut headings: Vec<&str> = Vec::new();
    let mut last: Option<usize> = None;
    let mut up: BTreeMap<(usize, u8), bool> = BTreeMap::new();
    for (line, text) in (1..).zip(source.text.lines()) {
        let text = text.trim();
        if let Some(gpu) = text.strip_prefix("GPU ") {
            last = headings.iter().position(|known| *known == text);
            if last.is_none() {
                last = Some(headings.len());
                headings.push(text);
                let number = gpu.split(':').next().unwrap_or_default();
                topology.gpus.push(Endpoint {
                    name: format!("GPU{}", number.trim()),
                    ..Endpoint::default()
                });
            }
        } else if is_no_link(text) {
            // The message is for the GPU above it.
            if let Some(gpu) = last {
                topology.switched.entry(gpu).or_default();
                topology.inactive.insert(gpu, is_switched(headings[gpu]));
            }
        } else if let Some((number, state)) = link(text) {
            let Some(gpu) = last else {
                source.problem(line, "link", text, "GPU n: before its links");
                continue;
            };
            if let Some((kind, value)) = state.split_once(':') {
                let errors = (number, kind.trim(), value.trim());
                read_errors(source, line, (gpu, errors), &mut topology);
                continue;
            }
            let is_up = state.ends_with("GB/s");
            if !is_up && !state.contains("inactive") {
                source.problem(line, "link", state, "a speed in GB/s, or <inactive>");
            }
            up.insert((gpu, number), is_up);
        } else if !text.is_empty() && !is_prompt(text) {
            source.problem(line, "line", text, "GPU n: or Link n:");
        }
    }
    for ((gpu, _), is_up) in up {
        *topology.switched.entry(gpu).or_default() += u16::from(is_up);
    }
    Ok(topology)
}

/// Reads a line of `nvlink -e`: `Link 0: Replay Errors: 4`. Bit error rates are no counts and are omitted.
fn read_errors(
    source: &mut Source<'_>,
    line: usize,
    (gpu, (link, kind, value)): (usize, (u8, &str, &str)),
    topology: &mut NodeTopology,
) {
    topology.tells_errors = true;
    // The last output counts.
    let of = topology.link_errors.entry((gpu, link)).or_default();
    of.retain(|(known, _)| known != kind);
    match value.parse::<u64>() {
        Ok(0) => {}
        Ok(errors) if kind.to_ascii_lowercase().contains("error") => {
            of.push((kind.to_owned(), errors));
        }
        Ok(_) => {}
        Err(_) if kind.contains("BER") || value == "N/A" => {}
        Err(_) => source.problem(line, "link", value, "a number of errors"),
    }
    topology.link_errors.retain(|_, errors| !errors.is_empty());
}
