//! What outlives a restart: the fabric with its lost cables, and the log of its changes, in one file.

use std::fs::{self, File};
use std::io::{self, BufReader, BufWriter, Write};
use std::path::{Path, PathBuf};

use railscope_model::fabric::{
    Equipment, Fabric, Link, LinkKind, PartId, Presence, Sighting, Sightings, Timestamp, Witness,
};
use railscope_model::identity::{Part, PortName};
use railscope_model::units::LinkSpeed;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::analyzer::ClusterView;
use crate::assemble::changes::{ChangeLog, Logged};
use crate::clock;
use crate::fabric::{Change, Ends, Socket};

/// Version of the file. A file of another version is ignored: the collector then starts empty.
const VERSION: u32 = 1;
const FILE: &str = "topology.json";

/// Why a state file cannot be read or written.
#[derive(Debug, thiserror::Error)]
pub enum StateError {
    /// The file or its folder.
    #[error("{file}: {source}")]
    Io {
        /// The file.
        file: PathBuf,
        /// What the system reported.
        source: io::Error,
    },
    /// What is in it.
    #[error("{file}: {message}")]
    Content {
        /// The file.
        file: PathBuf,
        /// Where and what was expected.
        message: String,
    },
}

/// State of an earlier run.
#[derive(Debug)]
pub struct Remembered {
    /// When it was written.
    pub at: Timestamp,
    /// The fabric, lost cables included.
    pub fabric: Fabric,
    /// The log of changes.
    pub changes: ChangeLog,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Wire {
    version: u32,
    at: Timestamp,
    parts: Vec<PartWire>,
    links: Vec<LinkWire>,
    forgotten: u64,
    changes: Vec<LoggedWire>,
}

#[derive(Serialize, Deserialize)]
struct PartWire {
    part: Part,
    #[serde(flatten)]
    equipment: EquipmentWire,
}

#[derive(Serialize, Deserialize)]
#[serde(tag = "is", rename_all = "lowercase")]
enum EquipmentWire {
    Host,
    Gpu {
        uuid: Option<String>,
        pci: Option<railscope_model::identity::PciAddress>,
    },
    Nic {
        guid: Option<railscope_model::identity::Guid>,
        pci: Option<railscope_model::identity::PciAddress>,
        rail: Option<u16>,
    },
    Bridge,
    Switch {
        guid: Option<railscope_model::identity::Guid>,
        ports: u16,
        description: String,
    },
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct LinkWire {
    kind: String,
    /// Places in the list of parts.
    ends: [u32; 2],
    ports: [String; 2],
    speed: Option<String>,
    /// Witness, when it last saw the link, and its newest report.
    seen: Vec<(String, Timestamp, String)>,
}

type EndsWire = [(Part, String); 2];

#[derive(Serialize, Deserialize)]
struct LoggedWire {
    at: Timestamp,
    #[serde(flatten)]
    change: ChangeWire,
}

#[derive(Serialize, Deserialize)]
#[serde(tag = "change", rename_all = "snake_case")]
enum ChangeWire {
    PartCame {
        part: Part,
    },
    PartWent {
        part: Part,
    },
    CableCame {
        cable: EndsWire,
    },
    CableWent {
        cable: EndsWire,
    },
    CableMoved {
        from: EndsWire,
        to: EndsWire,
    },
    SpeedChanged {
        cable: EndsWire,
        from: String,
        to: String,
    },
}

/// Saves the state of a tick in a folder, which is created if missing. The file is complete at any time:
/// it is written beside the old one and then replaces it.
///
/// # Errors
/// The folder or the file cannot be written; the old file is then kept.
pub fn save(folder: &Path, view: &ClusterView) -> Result<(), StateError> {
    save_json(folder, FILE, &Wire::of(view))
}

/// Writes a file of a folder beside the old one and puts it in its place.
pub(crate) fn save_json(
    folder: &Path,
    name: &str,
    wire: &impl Serialize,
) -> Result<(), StateError> {
    let file = folder.join(name);
    let beside = folder.join(format!("{name}.new"));
    let failed = |file: &Path| {
        let file = file.to_owned();
        move |source| StateError::Io { file, source }
    };
    fs::create_dir_all(folder).map_err(failed(folder))?;
    let mut out = BufWriter::new(File::create(&beside).map_err(failed(&beside))?);
    let written = serde_json::to_writer(&mut out, wire).map_err(io::Error::from);
    let saved = written
        .and_then(|()| out.flush())
        .and_then(|()| out.get_ref().sync_all())
        .map_err(failed(&beside))
        .and_then(|()| fs::rename(&beside, &file).map_err(failed(&file)));
    // On a full disk a part of it would keep the space that other files need; the first error is the one to report.
    saved.inspect_err(|_| drop(fs::remove_file(&beside)))
}

/// Loads the state of an earlier run; none if there is none.
///
/// # Errors
/// The file cannot be read, or reports something that this version does not understand. Nothing of it is
/// used.
pub fn load(folder: &Path) -> Result<Option<Remembered>, StateError> {
    let wire: Option<Wire> = load_json(folder, FILE)?;
    let read = wire.map(Wire::read).transpose();
    read.map_err(|message| StateError::Content {
        file: folder.join(FILE),
        message,
    })
}

/// Reads a file of a folder; none if it does not exist.
pub(crate) fn load_json<T: DeserializeOwned>(
    folder: &Path,
    name: &str,
) -> Result<Option<T>, StateError> {
    let file = folder.join(name);
    let open = match File::open(&file) {
        Ok(open) => open,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(source) => return Err(StateError::Io { file, source }),
    };
    let wire = serde_json::from_reader(BufReader::new(open));
    wire.map(Some).map_err(|error| StateError::Content {
        file,
        message: error.to_string(),
    })
}

impl Wire {
    fn of(view: &ClusterView) -> Self {
        let fabric = &view.fabric;
        let mut place = vec![0; 0];
        let mut parts = Vec::new();
        for (id, vertex) in fabric.vertices() {
            place.resize(id.index() + 1, 0);
            place[id.index()] = parts.len() as u32;
            parts.push(PartWire {
                part: vertex.part.clone(),
                equipment: EquipmentWire::of(&vertex.equipment),
            });
        }
        let at = |end: PartId| place[end.index()];
        let links = fabric.links().map(|(_, a, b, link)| LinkWire {
            kind: kind_word(link.kind).to_owned(),
            ends: [at(a), at(b)],
            ports: [(a, link.ports.0), (b, link.ports.1)]
                .map(|(end, port)| fabric.port_name(end, port).to_string()),
            speed: link.speed.map(|speed| speed.to_string()),
            seen: link
                .seen_by
                .iter()
                .map(|(who, said)| {
                    (
                        who.as_str().to_owned(),
                        clock::shown(said.at),
                        said.says.as_str().to_owned(),
                    )
                })
                .collect(),
        });
        Self {
            version: VERSION,
            at: clock::shown(view.now),
            links: links.collect(),
            parts,
            forgotten: view.changes.forgotten,
            changes: view.changes.entries.iter().map(LoggedWire::of).collect(),
        }
    }

    fn read(self) -> Result<Remembered, String> {
        if self.version != VERSION {
            return Err(format!(
                "version {} is not one that is read here: expected {VERSION}",
                self.version
            ));
        }
        let mut fabric = Fabric::default();
        let ids: Vec<PartId> = self
            .parts
            .into_iter()
            .map(|part| fabric.upsert(part.part, part.equipment.read()))
            .collect();
        for (place, link) in self.links.into_iter().enumerate() {
            link.read(&ids, &mut fabric)
                .map_err(|error| format!("links[{place}]: {error}"))?;
        }
        let mut changes = ChangeLog {
            forgotten: self.forgotten,
            ..ChangeLog::default()
        };
        for (place, logged) in self.changes.into_iter().enumerate() {
            let read = logged.read();
            changes.push(read.map_err(|error| format!("changes[{place}]: {error}"))?);
        }
        Ok(Remembered {
            at: clock::restored(self.at),
            fabric,
            changes,
        })
    }
}

const KINDS: [(LinkKind, &str); 4] = [
    (LinkKind::Inside, "inside"),
    (LinkKind::Pcie, "pcie"),
    (LinkKind::NvLink, "nvlink"),
    (LinkKind::Cable, "cable"),
];

fn kind_word(kind: LinkKind) -> &'static str {
    KINDS
        .iter()
        .find(|(own, _)| *own == kind)
        .map_or("cable", |(_, word)| word)
}

impl EquipmentWire {
    fn of(equipment: &Equipment) -> Self {
        match equipment.clone() {
            Equipment::Host => Self::Host,
            Equipment::Gpu { uuid, pci } => Self::Gpu { uuid, pci },
            Equipment::Nic { guid, pci, rail } => Self::Nic { guid, pci, rail },
            Equipment::PcieBridge => Self::Bridge,
            Equipment::Switch {
                guid,
                ports,
                description,
            } => Self::Switch {
                guid,
                ports,
                description,
            },
        }
    }

    fn read(self) -> Equipment {
        match self {
            Self::Host => Equipment::Host,
            Self::Gpu { uuid, pci } => Equipment::Gpu { uuid, pci },
            Self::Nic { guid, pci, rail } => Equipment::Nic { guid, pci, rail },
            Self::Bridge => Equipment::PcieBridge,
            Self::Switch {
                guid,
                ports,
                description,
            } => Equipment::Switch {
                guid,
                ports,
                description,
            },
        }
    }
}

impl LinkWire {
    fn read(self, ids: &[PartId], fabric: &mut Fabric) -> Result<(), String> {
        let kind = KINDS.iter().find(|(_, word)| *word == self.kind);
        let (kind, _) = kind.ok_or_else(|| format!("kind {:?} is unknown", self.kind))?;
        let mut ends = [PartId::default(); 2];
        let mut ports = [0; 2];
        for (place, end) in self.ends.iter().enumerate() {
            let id = ids.get(*end as usize);
            ends[place] =
                *id.ok_or_else(|| format!("end {end} is none of the {} parts", ids.len()))?;
            let port: PortName = self.ports[place].parse().map_err(said)?;
            let handle = fabric.port_handle(ends[place], &port);
            ports[place] = handle.ok_or("more ports than a switch can have")?;
        }
        let speed: Option<LinkSpeed> = self
            .speed
            .map(|speed| speed.parse().map_err(said))
            .transpose()?;
        let mut seen_by = Sightings::default();
        for (who, at, says) in self.seen {
            let who = Witness::ALL
                .into_iter()
                .find(|witness| witness.as_str() == who);
            let who = who.ok_or("a witness that is unknown")?;
            let all = [Presence::Lost, Presence::Unknown, Presence::Present];
            let says = all.into_iter().find(|presence| presence.as_str() == says);
            let says = says.ok_or("a presence that is unknown")?;
            let at = clock::restored(at);
            seen_by.set(who, Some(Sighting { at, says }));
        }
        let link = Link {
            kind: *kind,
            ports: (ports[0], ports[1]),
            speed,
            seen_by,
        };
        // From the end with fewer neighbors: a switch has many.
        let turned = matches!(
            fabric.vertex(ends[0]).equipment,
            Equipment::Switch { .. } | Equipment::Host
        );
        if turned && ends[0] != ends[1] {
            let link = Link {
                ports: (ports[1], ports[0]),
                ..link
            };
            fabric.connect(ends[1], ends[0], link);
        } else {
            fabric.connect(ends[0], ends[1], link);
        }
        Ok(())
    }
}

fn said(error: impl std::fmt::Display) -> String {
    error.to_string()
}

fn ends_wire(ends: &Ends) -> EndsWire {
    ends.each_ref()
        .map(|end| (end.part.clone(), end.port.to_string()))
}

fn read_ends(ends: EndsWire) -> Result<Ends, String> {
    let [a, b] = ends.map(|(part, port)| {
        let port = port.parse().map_err(said)?;
        Ok::<_, String>(Socket { part, port })
    });
    Ok([a?, b?])
}

impl LoggedWire {
    fn of(logged: &Logged) -> Self {
        let change = match &logged.change {
            Change::PartCame(part) => ChangeWire::PartCame { part: part.clone() },
            Change::PartWent(part) => ChangeWire::PartWent { part: part.clone() },
            Change::CableCame(cable) => ChangeWire::CableCame {
                cable: ends_wire(cable),
            },
            Change::CableWent(cable) => ChangeWire::CableWent {
                cable: ends_wire(cable),
            },
            Change::CableMoved { from, to } => ChangeWire::CableMoved {
                from: ends_wire(from),
                to: ends_wire(to),
            },
            Change::SpeedChanged { cable, from, to } => ChangeWire::SpeedChanged {
                cable: ends_wire(cable),
                from: from.to_string(),
                to: to.to_string(),
            },
        };
        Self {
            at: clock::shown(logged.at),
            change,
        }
    }

    fn read(self) -> Result<Logged, String> {
        let change = match self.change {
            ChangeWire::PartCame { part } => Change::PartCame(part),
            ChangeWire::PartWent { part } => Change::PartWent(part),
            ChangeWire::CableCame { cable } => Change::CableCame(read_ends(cable)?),
            ChangeWire::CableWent { cable } => Change::CableWent(read_ends(cable)?),
            ChangeWire::CableMoved { from, to } => Change::CableMoved {
                from: read_ends(from)?,
                to: read_ends(to)?,
            },
            ChangeWire::SpeedChanged { cable, from, to } => Change::SpeedChanged {
                cable: read_ends(cable)?,
                from: from.parse().map_err(said)?,
                to: to.parse().map_err(said)?,
            },
        };
        Ok(Logged {
            at: clock::restored(self.at),
            change,
        })
    }
}
